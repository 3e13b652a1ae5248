//! Objects as answers of the API hold them. A member that is null is one that is not there, as its conventions have it ("Null
//! Values"): lists without the word `omitempty` are written so when they are empty.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;

/// Objects of a list, one by one: the whole of it need not be held twice. A list of metadata alone that has none says null.
#[derive(Deserialize)]
#[serde(transparent)]
pub(crate) struct Items<'a>(#[serde(borrow)] Option<Vec<&'a RawValue>>);

impl Items<'_> {
    /// The objects, as far as one that cannot be read.
    pub(crate) fn objects<T: DeserializeOwned>(&self) -> impl Iterator<Item = Result<T, serde_json::Error>> {
        self.0.iter().flatten().map(|item| object(serde_json::from_str(item.get())?))
    }
}

/// Reads the objects of a whole list.
///
/// # Errors
/// The bytes are no list, or an object of it has another form.
pub fn listed<T: DeserializeOwned>(list: &[u8]) -> Result<Vec<T>, serde_json::Error> {
    #[derive(Deserialize)]
    struct List<'a> {
        #[serde(borrow, deserialize_with = "Items::deserialize")]
        items: Items<'a>,
    }
    serde_json::from_slice::<List<'_>>(list)?.items.objects().collect()
}

/// Reads one object of an answer.
pub(crate) fn object<T: DeserializeOwned>(mut value: Value) -> Result<T, serde_json::Error> {
    take_nulls(&mut value);
    serde_json::from_value(value)
}

fn take_nulls(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.retain(|_, member| !member.is_null());
            members.values_mut().for_each(take_nulls);
        }
        Value::Array(all) => all.iter_mut().for_each(take_nulls),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    struct Slice {
        #[serde(default)]
        endpoints: Vec<Endpoint>,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    struct Endpoint {
        #[serde(default)]
        zone: String,
    }

    #[test]
    fn a_member_that_is_null_is_not_there() {
        let list = br#"{"items": [{"endpoints": null}, {"endpoints": [{"zone": null}]}, {}]}"#;
        let none = || Slice { endpoints: vec![] };
        let one = Slice { endpoints: vec![Endpoint { zone: String::new() }] };
        assert_eq!(listed::<Slice>(list).expect("a list"), [none(), one, none()]);
        assert_eq!(listed::<Slice>(br#"{"items": null}"#).expect("an empty list"), []);
    }

    #[test]
    fn what_is_no_list_or_has_another_form_is_refused() {
        listed::<Slice>(b"{}").expect_err("it has no items");
        listed::<Slice>(br#"{"items": [{"endpoints": 7}]}"#).expect_err("a number is no list");
        listed::<Slice>(br#"{"items": [{"endpoints": [null]}]}"#).expect_err("an element is no member");
    }
}
