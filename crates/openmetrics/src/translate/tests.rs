//! Pages as client libraries of Go write them, and pages of any other kind.

use std::collections::BTreeSet;

use proptest::prelude::*;
use testkit::openmetrics::read;

use super::*;

fn translated(page: &str) -> String {
    translate(page).expect("a page")
}

fn problem(page: &str) -> String {
    translate(page).expect_err("no page").to_string()
}

/// Proves: Q3
#[test]
fn a_page_of_every_type_is_written_anew() {
    let page = r#"
# HELP rest_requests_total Requests by "code", \d and \\.
# TYPE rest_requests_total counter
rest_requests_total{code="200",path="/a\"b\\\n"} 12
rest_requests_total{code="500",} 1.5e+06 1795953600123
# a comment
# HELP took_seconds Time.
# TYPE took_seconds histogram
took_seconds_bucket{le="0.5"} 1
took_seconds_bucket{le="1"} 2
took_seconds_bucket{le="+Inf"} 3
took_seconds_sum 4.5
took_seconds_count 3
# TYPE pause summary
pause{quantile="0"} 1e-05
pause{quantile="1"} NaN
pause_sum 0.1
pause_count 7
# TYPE up gauge
up 1
plain{a="b"} -Inf
"#;
    let expected = r#"# TYPE rest_requests counter
# HELP rest_requests Requests by \"code\", \\d and \\.
rest_requests_total{code="200",path="/a\"b\\\n"} 12
rest_requests_total{code="500"} 1.5e+06 1795953600.123
# TYPE took_seconds histogram
# HELP took_seconds Time.
took_seconds_bucket{le="0.5"} 1
took_seconds_bucket{le="1.0"} 2
took_seconds_bucket{le="+Inf"} 3
took_seconds_sum 4.5
took_seconds_count 3
# TYPE pause summary
pause{quantile="0.0"} 1e-05
pause{quantile="1.0"} NaN
pause_sum 0.1
pause_count 7
# TYPE up gauge
up 1
# TYPE plain unknown
plain{a="b"} -Inf
# EOF
"#;
    assert_eq!(translated(page), expected);
    assert_eq!(read(expected).map(|page| page.samples.len()), Ok(13));
}

/// Go's runtime counts allocated bytes by a counter, and those of now by a gauge: without `_total` both are called the same. Proves: Q3
#[test]
fn a_counter_whose_name_is_anothers_keeps_its_own() {
    let page = "# TYPE alloc_bytes gauge\nalloc_bytes 1\n# TYPE alloc_bytes_total counter\nalloc_bytes_total 2\n";
    let expected =
        "# TYPE alloc_bytes gauge\nalloc_bytes 1\n# TYPE alloc_bytes_total unknown\nalloc_bytes_total 2\n# EOF\n";
    assert_eq!(translated(page), expected);
    let page = "# TYPE errors counter\nerrors 1\n# TYPE less_total counter\nless_total -1\n";
    let expected = "# TYPE errors unknown\nerrors 1\n# TYPE less_total unknown\nless_total -1\n# EOF\n";
    assert_eq!(translated(page), expected, "no counter of OpenMetrics");
}

/// Proves: Q3
#[test]
fn the_line_that_says_nothing_is_named() {
    assert_eq!(problem("up 1\nup\n"), "line 2 of its page is no sample");
    for line in
        ["up{a=\"b\" 1", "up{a=b} 1", "up{a=\"\\d\"} 1", "up{a=\"\",a=\"\"} 1", "up{a=\"\"b=\"\"} 1", "up{1=\"\"} 1"]
    {
        assert_eq!(problem(line), "line 1 of its page is no sample", "{line}");
    }
    for line in ["up x", "up inf", "up 1 x", "up 1 2 3", "9up 1", "<html>", "up{a=\"b\"}} 1"] {
        assert_eq!(problem(line), "line 1 of its page is no sample", "{line}");
    }
    assert_eq!(problem("# TYPE up colour"), "line 1 of its page gives a type that is none");
    assert_eq!(problem("# HELP 1 x"), "line 1 of its page has a name that is none");
    assert_eq!(problem("up 1\n# TYPE up gauge"), "line 2 of its page gives a type behind samples");
    assert_eq!(problem("# TYPE up histogram\nup 1"), "line 2 of its page is a sample that its family has not");
    assert_eq!(translated(""), "# EOF\n");
}

/// A family as a client library writes it; few names, so that they meet.
fn family() -> impl Strategy<Value = (String, String)> {
    let name = "(a|b)(_total|_count|_created|_bucket|_info){0,2}";
    let kind = prop::sample::select(vec!["counter", "gauge", "untyped", "histogram", "summary"]);
    (name, kind, 0..3_u32, any::<bool>()).prop_map(|(name, kind, value, with_label)| {
        let label = if with_label { "l=\"x\\\"\"," } else { "" };
        let samples = match kind {
            "histogram" => format!(
                "{name}_bucket{{{label}le=\"1\"}} {value}\n{name}_bucket{{{label}le=\"+Inf\"}} {value}\n\
                 {name}_sum{{{label}}} 1\n{name}_count{{{label}}} {value}\n"
            ),
            "summary" => format!(
                "{name}{{{label}quantile=\"0.5\"}} 1\n{name}_sum{{{label}}} 1\n{name}_count{{{label}}} {value}\n"
            ),
            _ => format!("{name}{{{label}}} {value}\n"),
        };
        (name.clone(), format!("# HELP {name} x\n# TYPE {name} {kind}\n{samples}"))
    })
}

proptest! {
    /// Pages whose families' names meet in OpenMetrics are pages nevertheless; no sample is there that was not. Proves: Q3
    #[test]
    fn every_page_of_a_client_is_a_page(families in prop::collection::btree_map("[a-z]", family(), 0..6)) {
        let mut names = BTreeSet::new();
        let page: String = families.values().filter(|(name, _)| names.insert(name)).map(|(_, text)| text.as_str()).collect();
        if let Ok(written) = translate(&page) {
            let read = read(&written).map_err(|error| TestCaseError::fail(format!("{error}\n{written}")))?;
            let names: BTreeSet<_> = page.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split(['{', ' ']).next()).collect();
            for sample in read.samples {
                prop_assert!(names.contains(sample.name.as_str()), "{}", sample.name);
            }
        }
    }

    /// Any text is a page or none. Proves: Q3
    #[test]
    fn any_text_is_a_page_or_none(text in "(# (TYPE|HELP) )?[ab_]{0,3}[{}=\"\\\\, 0-9a\n.#-]{0,40}") {
        if let Ok(written) = translate(&text) {
            prop_assert!(read(&written).is_ok(), "{}", written);
        }
    }
}
