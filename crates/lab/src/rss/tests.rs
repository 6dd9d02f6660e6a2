use super::*;

const OUTPUT: &str = "\
RX flow hash indirection table for eth0 with 4 RX ring(s):
    0:      0     1     2     3     0     1     2     3
    8:      3     3     3     3     3     3     3     3
RSS hash key:
6d:5a:56:da:25:5b:0e:c2:41:67:25:3d:43:a3:8f:b0:d0:ca:2b:cb:ae:7b:30:b4:77:cb:2d:a3:80:30:f2:0c:6a:42:b7:3b:be:ac:01:fa
RSS hash function:
    toeplitz: on
    xor: off
    crc32: off
";

#[test]
fn the_output_of_ethtool_is_imported() {
    let rss = Rss::from_ethtool(OUTPUT).unwrap();
    assert_eq!(rss.key, Rss::DEFAULT_KEY);
    assert_eq!(rss.table, [0, 1, 2, 3, 0, 1, 2, 3, 3, 3, 3, 3, 3, 3, 3, 3]);
    assert_eq!(rss.table_for(4), rss.table);
}

#[test]
fn a_device_that_tells_no_key_keeps_the_default() {
    let text = "RX flow hash indirection table for eth0 with 2 RX ring(s):\n    0: 0 1\n\
                RSS hash key:\nOperation not supported\nRSS hash function:\n    toeplitz: on\n";
    let rss = Rss::from_ethtool(text).unwrap();
    assert_eq!((rss.key.as_slice(), rss.table.as_slice()), (&Rss::DEFAULT_KEY[..], &[0, 1][..]));
}

#[test]
fn a_wrong_line_is_named_by_its_number() {
    let refused = |from: &str, to: &str| Rss::from_ethtool(&OUTPUT.replace(from, to)).unwrap_err();
    let cases = [
        ("    8:", "    9:", 3, EthtoolReason::WrongIndex { expected: 8, found: "9".into() }),
        ("3     0     1", "3     x     1", 2, EthtoolReason::NoQueue("x".into())),
        ("6d:5a", "6d:5", 5, EthtoolReason::NoKeyByte("5".into())),
        ("6d:5a", "+d:5a", 5, EthtoolReason::NoKeyByte("+d".into())),
        ("6d:5a:56", "6d:5a", 5, EthtoolReason::ShortKey(39)),
        ("xor: off", "xor: on", 8, EthtoolReason::OtherFunction("xor".into())),
        ("RX flow", "rx flaw", 1, EthtoolReason::Unknown(String::new())),
    ];
    for (from, to, line, reason) in cases {
        let error = refused(from, to);
        assert_eq!(error.line, line, "{error}");
        if !matches!(reason, EthtoolReason::Unknown(_)) {
            assert_eq!(error.reason, reason);
        }
    }
    assert_eq!(Rss::from_ethtool("").unwrap_err().reason, EthtoolReason::Nothing);
}

#[test]
fn a_default_table_gives_every_queue_the_same_share() {
    for queues in [1, 3, 4, 48, 200] {
        let table = Rss::default().table_for(queues);
        let share = |q| table.iter().filter(|t| usize::from(**t) == q).count();
        assert!((0..queues).all(|q| share(q) == table.len() / queues), "{queues} queues");
    }
}
