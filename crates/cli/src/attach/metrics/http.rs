//! A small server of one page, by HTTP/1.1.
//!
//! Each connection has one request and one answer, and a thread of its own; there are at most
//! [`MOST_CLIENTS`] of them, each for a bounded time. Requests are read by `httparse`. Whatever clients
//! do, the loop that holds the attachment only ever hands out numbers.
//!
//! Source: RFC 9110, RFC 9112.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;

use crate::attach::service::Message;

/// Connections at a time.
const MOST_CLIENTS: usize = 8;
/// How long a connection may last.
const MOST_TIME: Duration = Duration::from_secs(10);
/// How long the numbers may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// Most bytes of a request's head.
const MOST_BYTES: usize = 8192;
/// Most header fields of a request.
const MOST_FIELDS: usize = 64;

/// A place where metrics are served.
#[derive(Debug)]
pub(in crate::attach) struct Server {
    listener: TcpListener,
    address: SocketAddr,
}

/// An answer without its head.
struct Answer {
    status: &'static str,
    kind: &'static str,
    body: Vec<u8>,
}

impl Answer {
    fn text(status: &'static str, body: &str) -> Self {
        Self { status, kind: "text/plain; charset=utf-8", body: body.as_bytes().to_vec() }
    }
}

impl Server {
    /// Listens there; nobody is answered yet.
    ///
    /// # Errors
    /// If the address is not of this host, or is taken.
    pub(in crate::attach) fn bind(address: SocketAddr) -> anyhow::Result<Self> {
        let listener =
            TcpListener::bind(address).with_context(|| format!("cannot listen on {address}"))?;
        let address = listener.local_addr().context("where it listens is not known")?;
        Ok(Self { listener, address })
    }

    /// The same, where the address may be free a little later.
    ///
    /// # Errors
    /// If it is not free in two seconds.
    pub(in crate::attach) fn bind_in_time(address: SocketAddr) -> anyhow::Result<Self> {
        let end = Instant::now() + Duration::from_secs(2);
        loop {
            match Self::bind(address) {
                Err(_) if Instant::now() < end => thread::sleep(Duration::from_millis(20)),
                bound => return bound,
            }
        }
    }

    /// Returns where it listens.
    pub(in crate::attach) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers from now on, with numbers from whoever takes these messages, until what is returned is
    /// dropped.
    ///
    /// # Errors
    /// If no thread can be made.
    pub(super) fn serve(self, ask: Sender<Message>) -> anyhow::Result<Serving> {
        let Self { listener, address } = self;
        let (listener, is_over) = (Arc::new(listener), Arc::new(AtomicBool::new(false)));
        let (incoming, over) = (Arc::clone(&listener), Arc::clone(&is_over));
        let accept = move || {
            let clients = Arc::new(AtomicUsize::new(0));
            for stream in incoming.incoming() {
                if over.load(Ordering::Acquire) {
                    return;
                }
                let Ok(stream) = stream else {
                    // Out of descriptors or memory: others may give some back.
                    thread::sleep(Duration::from_millis(100));
                    continue;
                };
                if clients.fetch_add(1, Ordering::AcqRel) >= MOST_CLIENTS {
                    clients.fetch_sub(1, Ordering::AcqRel);
                    refuse(&stream);
                    continue;
                }
                let (ask, count) = (ask.clone(), Arc::clone(&clients));
                let client = move || {
                    // A client that goes away or is too slow does without.
                    let _ = answer(&stream, &ask);
                    count.fetch_sub(1, Ordering::AcqRel);
                };
                if thread::Builder::new().name("metrics client".into()).spawn(client).is_err() {
                    clients.fetch_sub(1, Ordering::AcqRel);
                }
            }
        };
        let thread = thread::Builder::new().name("metrics".into()).spawn(accept);
        let thread = Some(thread.context("no thread can be made")?);
        Ok(Serving { listener, address, is_over, thread })
    }
}

/// A server that answers until this is dropped; then the address is free.
#[derive(Debug)]
pub(super) struct Serving {
    listener: Arc<TcpListener>,
    address: SocketAddr,
    is_over: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Serving {
    /// Returns where it listens.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        // On Linux an accept(2) that waits comes back then, and so does every later one.
        let is_told = rustix::net::shutdown(&*self.listener, rustix::net::Shutdown::Both).is_ok();
        if is_told {
            let _ = self.thread.take().map(thread::JoinHandle::join);
        }
    }
}

/// Answers one more client than there may be, without waiting for it.
fn refuse(stream: &TcpStream) {
    let _ = stream.set_nonblocking(true);
    let _ = write(stream, &Answer::text("503 Service Unavailable", "too many clients\n"), true);
}

fn answer(stream: &TcpStream, ask: &Sender<Message>) -> io::Result<()> {
    let end = Instant::now() + MOST_TIME;
    stream.set_write_timeout(Some(MOST_TIME))?;
    let mut bytes = Vec::new();
    let (said, with_body) = loop {
        let mut fields = [httparse::EMPTY_HEADER; MOST_FIELDS];
        let mut request = httparse::Request::new(&mut fields);
        match request.parse(&bytes) {
            Ok(httparse::Status::Complete(_)) => {
                let (method, path) = (request.method.unwrap_or(""), request.path.unwrap_or(""));
                break (page(method, path, ask), method != "HEAD");
            }
            Ok(httparse::Status::Partial) if bytes.len() >= MOST_BYTES => {
                break (Answer::text("431 Request Header Fields Too Large", "too long\n"), true);
            }
            Ok(httparse::Status::Partial) => {}
            Err(error) => {
                break (Answer::text("400 Bad Request", &format!("{error}\n")), true);
            }
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break (Answer::text("408 Request Timeout", "too slow\n"), true);
        }
        stream.set_read_timeout(Some(left))?;
        let mut piece = [0; 1024];
        match (&mut &*stream).read(&mut piece) {
            Ok(0) => return Ok(()),
            Ok(len) => bytes.extend_from_slice(&piece[..len]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    };
    write(stream, &said, with_body)?;
    stream.shutdown(Shutdown::Write)?;
    drain(stream)
}

/// Reads what the client still sends, up to a bound: a connection that is closed with bytes unread is
/// reset, and the answer may be lost with it (RFC 9112, section 9.6).
fn drain(mut stream: &TcpStream) -> io::Result<()> {
    /// How long that may take, and how many pieces it may be.
    const LINGER: Duration = Duration::from_secs(1);
    const MOST_PIECES: usize = 64;
    stream.set_read_timeout(Some(LINGER))?;
    let mut piece = [0; 1024];
    let end = Instant::now() + LINGER;
    for _ in 0..MOST_PIECES {
        if stream.read(&mut piece)? == 0 || Instant::now() > end {
            break;
        }
    }
    Ok(())
}

fn page(method: &str, path: &str, ask: &Sender<Message>) -> Answer {
    if !matches!(method, "GET" | "HEAD") {
        return Answer::text("405 Method Not Allowed", "only GET and HEAD\n");
    }
    match path_of(path) {
        "/metrics" => {
            let (reply, scrape) = sync_channel(1);
            let sent = ask.send(Message::Scrape(reply)).is_ok();
            let scrape = sent.then(|| scrape.recv_timeout(PATIENCE).ok()).flatten();
            match scrape.map(|scrape| scrape.text()) {
                Some(Ok(body)) => Answer { status: "200 OK", kind: prometheus::TEXT_FORMAT, body },
                Some(Err(error)) => {
                    Answer::text("500 Internal Server Error", &format!("{error}\n"))
                }
                None => Answer::text("503 Service Unavailable", "the counters cannot be read\n"),
            }
        }
        "/" => Answer::text("200 OK", "rxsteer: metrics are at /metrics\n"),
        _ => Answer::text("404 Not Found", "metrics are at /metrics\n"),
    }
}

/// Returns the path of a request's target, which may be a whole URI as proxies send it (RFC 9112, section
/// 3.2.2).
fn path_of(target: &str) -> &str {
    let is_scheme =
        |word: &str| word.eq_ignore_ascii_case("http") || word.eq_ignore_ascii_case("https");
    let rest = target.split_once("://").filter(|(scheme, _)| is_scheme(scheme));
    // What follows the authority; an empty path is the same as `/`.
    let target =
        rest.map_or(target, |(_, rest)| rest.find(['/', '?']).map_or("/", |at| &rest[at..]));
    match target.split('?').next() {
        None | Some("") => "/",
        Some(path) => path,
    }
}

fn write(mut stream: &TcpStream, said: &Answer, with_body: bool) -> io::Result<()> {
    let Answer { status, kind, body } = said;
    let allow = if status.starts_with("405") { "Allow: GET, HEAD\r\n" } else { "" };
    let mut bytes = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n{allow}Connection: close\r\n\r\n",
        body.len()
    )
    .into_bytes();
    if with_body {
        bytes.extend_from_slice(body);
    }
    stream.write_all(&bytes)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    /// Returns a server whose numbers nobody gives.
    fn served() -> (Serving, std::sync::mpsc::Receiver<Message>) {
        let server = Server::bind(([127, 0, 0, 1], 0).into()).unwrap();
        let (ask, asked) = channel();
        (server.serve(ask).unwrap(), asked)
    }

    fn said(address: SocketAddr, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(request).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn requests_that_make_no_sense_are_answered_so() {
        let (serving, _asked) = served();
        let address = serving.address();
        let first = |request: &[u8]| said(address, request).lines().next().unwrap().to_owned();
        assert_eq!(first(b"GET /none HTTP/1.1\r\n\r\n"), "HTTP/1.1 404 Not Found");
        assert_eq!(first(b"POST /metrics HTTP/1.1\r\n\r\n"), "HTTP/1.1 405 Method Not Allowed");
        assert_eq!(first(b"\x16\x03\x01\x02\x00"), "HTTP/1.1 400 Bad Request");
        let endless = [b"GET / HTTP/1.1\r\nX: ".as_slice(), &[b'a'; MOST_BYTES]].concat();
        assert_eq!(first(&endless), "HTTP/1.1 431 Request Header Fields Too Large");
        let head = said(address, b"HEAD / HTTP/1.0\r\n\r\n");
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.ends_with("\r\n\r\n"), "{head}");
    }

    #[test]
    fn a_crowd_is_refused_and_the_place_of_who_leaves_is_free_again() {
        let (serving, _asked) = served();
        let address = serving.address();
        let idle: Vec<TcpStream> =
            (0..MOST_CLIENTS).map(|_| TcpStream::connect(address).unwrap()).collect();
        let mut refused = TcpStream::connect(address).unwrap();
        let mut answer = String::new();
        refused.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
        drop(idle);
        let start = Instant::now();
        loop {
            let mut stream = TcpStream::connect(address).unwrap();
            // A refusal may come before the request is written.
            let _ = stream.write_all(b"GET / HTTP/1.1\r\n\r\n");
            let mut answer = String::new();
            let _ = stream.read_to_string(&mut answer);
            if answer.starts_with("HTTP/1.1 200 ") {
                break;
            }
            assert!(start.elapsed() < Duration::from_secs(60), "{answer}");
            thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn numbers_that_nobody_gives_are_said_to_be_missing() {
        let (serving, asked) = served();
        drop(asked);
        let answer = said(serving.address(), b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    }
    #[test]
    fn a_target_is_a_path_or_a_whole_uri() {
        let (serving, _asked) = served();
        let first = |target: &str| {
            let request = format!("GET {target} HTTP/1.1\r\nHost: x\r\n\r\n");
            said(serving.address(), request.as_bytes()).lines().next().unwrap().to_owned()
        };
        for page in
            ["/", "/?a=b", "http://host", "http://host/", "HTTP://host:9477/?a", "https://[::1]"]
        {
            assert_eq!(first(page), "HTTP/1.1 200 OK", "{page}");
        }
        for none in ["http://host/none", "/http://host/", "ftp://host/", "http:/", "//host/", "*"] {
            assert_eq!(first(none), "HTTP/1.1 404 Not Found", "{none}");
        }
        assert_eq!(path_of("http://host/metrics?x=/none"), "/metrics");
        assert_eq!(path_of("/metrics?of=http://host/"), "/metrics");
    }

    #[test]
    fn when_it_ends_nobody_is_let_in_and_the_address_is_free() {
        let (serving, _asked) = served();
        let address = serving.address();
        let idle = TcpStream::connect(address).unwrap();
        assert!(Server::bind(address).is_err());
        drop(serving);
        let refused = TcpStream::connect(address).map_err(|error| error.kind());
        assert_eq!(refused.unwrap_err(), io::ErrorKind::ConnectionRefused);
        assert_eq!(Server::bind(address).unwrap().address(), address);
        drop(idle);
    }
}
