//! What the fuzz targets check. The project's ordinary tests run the same code over the seeds, over
//! findings and over mutations of both.
#![forbid(unsafe_code)]

pub mod capture;
pub mod datagram;
pub mod dissect;
