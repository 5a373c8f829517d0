//! Values held against the schemas of `docs/json`: JSON Schema as far as these files use it. A word that is not known here is an error, so
//! that no schema can contain a rule that is not checked.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Map, Value};

/// Words that describe and do not check.
const SAID_ONLY: [&str; 3] = ["$schema", "title", "description"];

/// All schemas of a directory, by name.
pub struct Schemas(BTreeMap<String, Value>);

impl Schemas {
    pub fn read(dir: &Path) -> Result<Schemas> {
        let mut all = BTreeMap::new();
        for entry in fs::read_dir(dir).with_context(|| dir.display().to_string())? {
            let path = entry?.path();
            if path.extension().is_some_and(|e| e == "json") {
                let name = path.file_name().and_then(|n| n.to_str()).context("a name")?.to_owned();
                let schema = serde_json::from_slice(&fs::read(&path)?).with_context(|| name.clone())?;
                all.insert(name, schema);
            }
        }
        Ok(Schemas(all))
    }

    pub fn names(&self) -> impl Iterator<Item = &String> {
        self.0.keys()
    }

    /// Fails with the place in the value at which it differs.
    pub fn check(&self, name: &str, value: &Value) -> Result<()> {
        self.hold(self.named(name)?, value, "$")
    }

    fn named(&self, name: &str) -> Result<&Value> {
        self.0.get(name).with_context(|| format!("there is no schema {name}"))
    }

    fn hold(&self, schema: &Value, value: &Value, at: &str) -> Result<()> {
        let schema = schema.as_object().with_context(|| format!("{at}: a schema is an object"))?;
        for (word, rule) in schema {
            match word.as_str() {
                "$ref" => self.hold(self.named(rule.as_str().context("$ref names a file")?)?, value, at)?,
                "anyOf" => self.any(rule, value, at)?,
                "type" => ensure!(is_of_type(rule, value), "{at} is not of type {rule}: {value}"),
                "enum" => {
                    let words = rule.as_array().context("enum is a list")?;
                    ensure!(words.contains(value), "{at} is none of {rule}: {value}");
                }
                "minimum" => ensure!(
                    value.as_f64().is_none_or(|n| Some(n) >= rule.as_f64()),
                    "{at} is below {rule}: {value}"
                ),
                "items" => {
                    for (n, item) in value.as_array().into_iter().flatten().enumerate() {
                        self.hold(rule, item, &format!("{at}[{n}]"))?;
                    }
                }
                "properties" | "required" | "additionalProperties" => {}
                word if SAID_ONLY.contains(&word) => {}
                other => bail!("{at}: the word {other} of the schema is not known here"),
            }
        }
        match value.as_object() {
            Some(fields) => self.fields(schema, fields, at),
            None => Ok(()),
        }
    }

    fn any(&self, rule: &Value, value: &Value, at: &str) -> Result<()> {
        let mut whys = Vec::new();
        for one in rule.as_array().context("anyOf is a list")? {
            match self.hold(one, value, at) {
                Ok(()) => return Ok(()),
                Err(why) => whys.push(format!("{why:#}")),
            }
        }
        bail!("{at} is none of these: {}", whys.join("; "))
    }

    fn fields(&self, schema: &Map<String, Value>, fields: &Map<String, Value>, at: &str) -> Result<()> {
        let known = schema.get("properties").and_then(Value::as_object);
        for (name, value) in fields {
            let at = format!("{at}.{name}");
            match (known.and_then(|k| k.get(name)), schema.get("additionalProperties")) {
                (Some(rule), _) => self.hold(rule, value, &at)?,
                (None, Some(Value::Bool(false))) => bail!("{at} is not in the schema"),
                (None, Some(rule)) if rule.is_object() => self.hold(rule, value, &at)?,
                (None, _) => {}
            }
        }
        for name in schema.get("required").and_then(Value::as_array).into_iter().flatten() {
            let name = name.as_str().context("required has names")?;
            ensure!(fields.contains_key(name), "{at}.{name} is missing");
        }
        Ok(())
    }
}

fn is_of_type(rule: &Value, value: &Value) -> bool {
    let one = |word: &str| match word {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => false,
    };
    match rule {
        Value::String(word) => one(word),
        Value::Array(words) => words.iter().filter_map(Value::as_str).any(one),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn schemas() -> Schemas {
        let inner = json!({ "type": "integer", "minimum": 0 });
        let whole = json!({
            "title": "a", "type": "object",
            "properties": { "n": { "$ref": "n" }, "word": { "enum": ["x", null] }, "list": { "type": "array", "items": { "$ref": "n" } } },
            "required": ["n"], "additionalProperties": false,
        });
        let any = json!({ "anyOf": [{ "$ref": "n" }, { "type": ["string", "null"] }] });
        let open = json!({ "type": "object", "additionalProperties": { "$ref": "n" } });
        let odd = json!({ "maximum": 3 });
        let all = [("n", inner), ("whole", whole), ("any", any), ("open", open), ("odd", odd)];
        Schemas(all.into_iter().map(|(name, schema)| (name.to_owned(), schema)).collect())
    }

    #[test]
    fn what_differs_is_found_at_its_place() {
        let schemas = schemas();
        for (name, good) in [
            ("whole", json!({ "n": 3, "word": null, "list": [0, 1] })),
            ("any", json!(3)),
            ("any", json!("x")),
            ("any", json!(null)),
            ("open", json!({ "a": 1, "b": 2 })),
        ] {
            schemas.check(name, &good).unwrap_or_else(|e| panic!("{name} {good}: {e:#}"));
        }
        for (name, bad, place) in [
            ("whole", json!({}), "$.n is missing"),
            ("whole", json!({ "n": -1 }), "$.n is below 0"),
            ("whole", json!({ "n": 1.5 }), "$.n is not of type"),
            ("whole", json!({ "n": 1, "word": "y" }), "$.word is none of"),
            ("whole", json!({ "n": 1, "more": 1 }), "$.more is not in the schema"),
            ("whole", json!({ "n": 1, "list": [1, "x"] }), "$.list[1] is not of type"),
            ("any", json!([]), "$ is none of these"),
            ("open", json!({ "a": "x" }), "$.a is not of type"),
            ("odd", json!(1), "maximum"),
            ("none", json!(1), "there is no schema"),
        ] {
            let why = format!("{:#}", schemas.check(name, &bad).expect_err(name));
            assert!(why.contains(place), "{name} {bad}: {why}");
        }
    }
}
