//! Shapes of bodies, from which the OpenAPI document is made; tests of the binary hold what is answered against that.

use serde_json::{Map, Value, json};

/// What a field holds.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Text,
    Int,
    Number,
    Bool,
    /// Names and values that the shape does not fix.
    Object,
    /// Anything.
    Any,
    One(&'static Schema),
    List(&'static Kind),
    OrNull(&'static Kind),
}

/// A name, what it holds, and what that means.
pub(crate) type Field = (&'static str, Kind, &'static str);

/// An object with fields.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Schema {
    pub name: &'static str,
    /// Its fields come first.
    pub base: Option<&'static Schema>,
    pub fields: &'static [Field],
    /// Of a body of a request: what has to be there. `None`: everything, as in all answers.
    pub required: Option<&'static [&'static str]>,
}

impl Schema {
    /// Of an answer.
    pub const fn new(name: &'static str, fields: &'static [Field]) -> Self {
        Self { name, base: None, fields, required: None }
    }

    /// Of an answer that says more than another.
    pub const fn more(name: &'static str, base: &'static Self, fields: &'static [Field]) -> Self {
        Self { name, base: Some(base), fields, required: None }
    }

    /// Of a body of a request.
    pub const fn body(name: &'static str, required: &'static [&'static str], fields: &'static [Field]) -> Self {
        Self { name, base: None, fields, required: Some(required) }
    }

    /// All of its fields.
    pub fn all(&self) -> Vec<Field> {
        let mut all = self.base.map(Self::all).unwrap_or_default();
        all.extend_from_slice(self.fields);
        all
    }

    /// As OpenAPI 3.1 writes it; shapes that it names are added to `into`.
    pub fn describe(&self, into: &mut Map<String, Value>) {
        if into.contains_key(self.name) {
            return;
        }
        // A place for it, so that shapes that name each other come to an end.
        into.insert(self.name.to_owned(), Value::Null);
        let fields = self.all();
        let required: Vec<&str> =
            self.required.map_or_else(|| fields.iter().map(|(name, _, _)| *name).collect(), <[_]>::to_vec);
        let mut properties = Map::new();
        for (name, kind, text) in &fields {
            let mut described = kind.describe(into);
            described["description"] = (*text).into();
            properties.insert((*name).to_owned(), described);
        }
        into.insert(self.name.to_owned(), json!({"type": "object", "properties": properties, "required": required}));
    }
}

impl Kind {
    /// What is wrong with the text of a parameter.
    pub fn refuses(&self, text: &str) -> Option<&'static str> {
        match self {
            Self::Bool => (!matches!(text, "true" | "false")).then_some("it is true or false"),
            Self::Int => text.parse::<u64>().is_err().then_some("it is a whole number that is not negative"),
            Self::Number => text.parse::<f64>().is_err().then_some("it is a number"),
            _ => None,
        }
    }

    /// As OpenAPI has it; shapes that it names are put into a map.
    pub fn describe(&self, into: &mut Map<String, Value>) -> Value {
        let simple = |kind: &str| json!({"type": kind});
        match self {
            Self::Text => simple("string"),
            Self::Int => simple("integer"),
            Self::Number => simple("number"),
            Self::Bool => simple("boolean"),
            Self::Object => simple("object"),
            Self::Any => json!({}),
            Self::One(schema) => {
                schema.describe(into);
                json!({"$ref": format!("#/components/schemas/{}", schema.name)})
            }
            Self::List(kind) => json!({"type": "array", "items": kind.describe(into)}),
            Self::OrNull(kind) => json!({"anyOf": [kind.describe(into), {"type": "null"}]}),
        }
    }
}
