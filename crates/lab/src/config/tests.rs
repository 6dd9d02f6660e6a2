use serde::Deserialize;

use super::*;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Plain {
    #[expect(dead_code, reason = "only its place in the text is looked at")]
    table: Inner,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Inner {
    irq_cpu: Spanned<u16>,
}

fn refusal(text: &str) -> ConfigError {
    Source::new("host.toml", text).parse::<Plain>().unwrap_err()
}

#[test]
fn an_unknown_key_is_named_with_its_place_and_what_is_allowed() {
    let error = refusal("# a host\n[table]\n  irq_cpus = 3\n");
    assert_eq!((error.place, error.key.as_str()), (Some((3, 3)), "table.irq_cpus"));
    assert!(error.message.contains("irq_cpu`"), "{error}");
    assert!(
        error.to_string().starts_with("host.toml:3:3: table.irq_cpus: unknown field"),
        "{error}"
    );
}

#[test]
fn a_value_of_the_wrong_kind_is_named_with_its_place() {
    let error = refusal("[table]\nirq_cpu = \"zero\"\n");
    assert_eq!((error.place, error.key.as_str()), (Some((2, 11)), "table.irq_cpu"));
    assert!(error.message.contains("a whole number from 0 to 65535"), "{error}");
}

#[test]
fn text_that_is_no_toml_is_refused_with_its_line() {
    assert_eq!(refusal("[table]\nirq_cpu 3\n").place.unwrap().0, 2);
}

#[test]
fn a_value_that_is_refused_later_has_its_place_too() {
    let source = Source::new("-", "# é\n[table]\nirq_cpu = 9\n");
    #[derive(Deserialize)]
    struct Loose {
        table: Inner,
    }
    let loose: Loose = source.parse().unwrap();
    let error = source.refuse(&loose.table.irq_cpu, "no such CPU");
    assert_eq!(error.to_string(), "-:3:11: table.irq_cpu: no such CPU");
}

#[test]
fn an_endless_file_is_refused_unread() {
    let text = " ".repeat(MAX_BYTES + 1);
    assert!(refusal(&text).message.contains("at most"));
}
