//! The numbers of one line of JSON, each with the way to it as its name.

use serde_json::Value;

/// Fields by which one object of a list differs from the others, the best first.
const NAMES: [&str; 7] = ["name", "net", "file_system", "fs", "peer", "router", "id"];

/// `{"nets":[{"name":"tcp0","in":1}],"cpu":2}` is `nets.tcp0.in` 1 and `cpu` 2. A line that is no object has none.
pub fn numbers(line: &str, most: usize) -> Vec<(String, f64)> {
    let mut all = Vec::new();
    if let Ok(value @ Value::Object(_)) = serde_json::from_str(line) {
        walk(String::new(), &value, &mut all, most);
    }
    all
}

fn walk(name: String, value: &Value, all: &mut Vec<(String, f64)>, most: usize) {
    let below = |word: &str| if name.is_empty() { word.to_owned() } else { format!("{name}.{word}") };
    match value {
        Value::Number(number) if all.len() < most => {
            all.extend(number.as_f64().filter(|n| n.is_finite()).map(|n| (name, n)));
        }
        Value::Object(fields) => {
            fields.iter().for_each(|(word, value)| walk(below(word), value, all, most));
        }
        Value::Array(list) => {
            for (at, value) in list.iter().enumerate() {
                let said = NAMES.iter().find_map(|name| value.get(name)?.as_str());
                walk(below(said.unwrap_or(&at.to_string())), value, all, most);
            }
        }
        _ => {}
    }
}

/// Does a field's name fit a pattern, in which `*` stands for any characters?
pub fn fits(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((head, tail)) => name.strip_prefix(head).is_some_and(|rest| {
            rest.char_indices().map(|(at, _)| at).chain([rest.len()]).any(|at| fits(tail, &rest[at..]))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_has_the_way_to_it_as_its_name() {
        let line = r#"{"t":"now","cpu":2,"nets":[{"name":"tcp0","in":1.5},{"name":"tcp1","in":3}],"x":[7,{"y":8}],"ok":true}"#;
        let want = [("cpu", 2.0), ("nets.tcp0.in", 1.5), ("nets.tcp1.in", 3.0), ("x.0", 7.0), ("x.1.y", 8.0)];
        let found = numbers(line, 10);
        assert_eq!(found.iter().map(|(n, v)| (n.as_str(), *v)).collect::<Vec<_>>(), want);
        assert_eq!(numbers(line, 2).len(), 2);
        for none in ["", "7", "[1]", "{", r#"{"a":"b"}"#] {
            assert!(numbers(none, 10).is_empty(), "{none}");
        }
    }

    #[test]
    fn a_star_stands_for_any_characters() {
        let table = [
            ("cpu", "cpu", true),
            ("cpu", "cpu2", false),
            ("*.in", "nets.tcp0.in", true),
            ("nets.*.in", "nets.tcp0.in", true),
            ("nets.*.in", "nets.in", false),
            ("*", "", true),
            ("a*b*c", "axxbyyc", true),
            ("a*b", "axbx", false),
        ];
        for (pattern, name, want) in table {
            assert_eq!(fits(pattern, name), want, "{pattern} {name}");
        }
    }
}
