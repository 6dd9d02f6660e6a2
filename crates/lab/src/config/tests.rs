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
fn no_message_names_a_type_of_rust() {
    #[derive(Debug, Deserialize)]
    #[expect(dead_code, reason = "only refusals are looked at")]
    struct Kinds {
        table: Option<Inner>,
        list: Option<Vec<u64>>,
        whole: Option<i64>,
        number: Option<f64>,
        switch: Option<bool>,
    }
    for (text, expected) in [
        ("table = 3", "integer `3`, expected a table"),
        ("list = 3", "integer `3`, expected a list"),
        ("number = [1]", "list, expected a number"),
        ("number = { a = 1 }", "table, expected a number"),
        ("list = [-3]", "integer `-3`, expected a whole number from 0 on"),
        ("list = [99999999999999999999]", "integer `99999999999999999999`, expected a whole"),
        ("whole = 0.5", "floating point `0.5`, expected a whole number"),
        ("number = \"a\"", "string \"a\", expected a number"),
        ("switch = 1", "integer `1`, expected true or false"),
    ] {
        let error = Source::new("-", text).parse::<Kinds>().unwrap_err();
        assert!(error.message.contains(expected), "{text}: {error}");
        for word in ["struct", "i128", "u64", "i64", "f64", "sequence", "boolean", "Inner"] {
            assert!(!error.message.contains(word), "{text}: {error}");
        }
    }
}

#[test]
fn a_name_is_one_line_with_something_in_it() {
    #[derive(Debug, Deserialize)]
    struct Named {
        name: Spanned<String>,
    }
    for (text, right) in [
        ("'a b'", true),
        ("''", false),
        ("' '", false),
        ("\"a\\nb\"", false),
        ("\"\\u001b\"", false),
    ] {
        let text = format!("name = {text}");
        let source = Source::new("-", &text);
        let named: Named = source.parse().unwrap();
        assert_eq!(source.one_line(&named.name).is_ok(), right, "{text}");
    }
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
