//! Typed access to a node's attributes, read once at the boundary.
//!
//! A lowering names each attribute with its default; whatever it did not name is refused afterwards, so that an
//! attribute that would change the result is never dropped in silence.

use std::cell::RefCell;

use super::lowering::{Lowered, Refused};
use super::schema::attribute_proto::AttributeType;
use super::schema::{AttributeProto, GraphProto, TensorProto};

/// The attributes of one node, with references to a function's attributes resolved.
#[derive(Debug, Default)]
pub(super) struct Attributes<'m> {
    list: Vec<(&'m str, &'m AttributeProto)>,
    read: RefCell<Vec<bool>>,
}

impl<'m> Attributes<'m> {
    pub(super) fn new(list: Vec<(&'m str, &'m AttributeProto)>) -> Self {
        let read = RefCell::new(vec![false; list.len()]);
        Self { list, read }
    }

    /// Every attribute under the name it has on this node.
    pub(super) fn list(&self) -> &[(&'m str, &'m AttributeProto)] {
        &self.list
    }

    fn find(&self, name: &str, kind: AttributeType) -> Lowered<Option<&'m AttributeProto>> {
        let Some(at) = self.list.iter().position(|(n, _)| *n == name) else { return Ok(None) };
        let (_, attribute) = self.list[at];
        self.read.borrow_mut()[at] = true;
        // Files older than IR 2 leave the type out.
        match attribute.r#type {
            Some(t) if t != kind as i32 && t != AttributeType::Undefined as i32 => {
                Err(Refused::new(format!("attribute `{name}` is not of type {}", kind.as_str_name())))
            }
            _ => Ok(Some(attribute)),
        }
    }

    pub(super) fn int_opt(&self, name: &str) -> Lowered<Option<i64>> {
        Ok(self.find(name, AttributeType::Int)?.map(|a| a.i()))
    }

    pub(super) fn int(&self, name: &str, default: i64) -> Lowered<i64> {
        Ok(self.int_opt(name)?.unwrap_or(default))
    }

    pub(super) fn flag(&self, name: &str, default: bool) -> Lowered<bool> {
        Ok(self.int_opt(name)?.map_or(default, |v| v != 0))
    }

    pub(super) fn float_opt(&self, name: &str) -> Lowered<Option<f32>> {
        Ok(self.find(name, AttributeType::Float)?.map(|a| a.f()))
    }

    pub(super) fn float(&self, name: &str, default: f32) -> Lowered<f32> {
        Ok(self.float_opt(name)?.unwrap_or(default))
    }

    pub(super) fn ints_opt(&self, name: &str) -> Lowered<Option<&'m [i64]>> {
        Ok(self.find(name, AttributeType::Ints)?.map(|a| a.ints.as_slice()))
    }

    /// A list of sizes, of the given length; `default` repeated when the attribute is absent.
    pub(super) fn sizes(&self, name: &str, rank: usize, default: usize) -> Lowered<Vec<usize>> {
        let Some(values) = self.ints_opt(name)? else { return Ok(vec![default; rank]) };
        if values.len() != rank {
            return Err(Refused::new(format!(
                "attribute `{name}` has {} values where {rank} are needed",
                values.len()
            )));
        }
        values
            .iter()
            .map(|v| {
                usize::try_from(*v)
                    .map_err(|_| Refused::new(format!("attribute `{name}` holds the negative value {v}")))
            })
            .collect()
    }

    pub(super) fn floats_opt(&self, name: &str) -> Lowered<Option<&'m [f32]>> {
        Ok(self.find(name, AttributeType::Floats)?.map(|a| a.floats.as_slice()))
    }

    pub(super) fn text(&self, name: &str, default: &'static str) -> Lowered<&'m str> {
        let Some(attribute) = self.find(name, AttributeType::String)? else { return Ok(default) };
        std::str::from_utf8(attribute.s())
            .map_err(|_| Refused::new(format!("attribute `{name}` is not UTF-8")))
    }

    pub(super) fn texts_opt(&self, name: &str) -> Lowered<Option<Vec<&'m str>>> {
        let Some(attribute) = self.find(name, AttributeType::Strings)? else { return Ok(None) };
        attribute
            .strings
            .iter()
            .map(|s| std::str::from_utf8(s))
            .collect::<Result<Vec<_>, _>>()
            .map(Some)
            .map_err(|_| Refused::new(format!("attribute `{name}` is not UTF-8")))
    }

    pub(super) fn tensor_opt(&self, name: &str) -> Lowered<Option<&'m TensorProto>> {
        Ok(self.find(name, AttributeType::Tensor)?.and_then(|a| a.t.as_ref()))
    }

    pub(super) fn graph(&self, name: &str) -> Lowered<&'m GraphProto> {
        self.find(name, AttributeType::Graph)?
            .and_then(|a| a.g.as_ref())
            .ok_or_else(|| Refused::new(format!("the graph `{name}` is missing")))
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.list.iter().any(|(n, _)| *n == name)
    }

    /// Marks attributes that do not change the result.
    pub(super) fn ignore(&self, names: &[&str]) {
        for (read, (name, _)) in self.read.borrow_mut().iter_mut().zip(&self.list) {
            *read |= names.contains(name);
        }
    }

    /// Attributes that nobody asked for.
    pub(super) fn unread(&self) -> Vec<&'m str> {
        let read = self.read.borrow();
        self.list.iter().zip(read.iter()).filter(|(_, read)| !**read).map(|((n, _), _)| *n).collect()
    }
}
