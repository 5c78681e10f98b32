//! Typed access to the attributes of an ONNX node.
//!
//! A lowering reads each attribute by name, with its default. If the lowering leaves an attribute unread, the node is
//! refused, so an attribute that would change the result is never ignored silently.

use std::cell::RefCell;

use super::refused::Refused;
use super::schema::attribute_proto::AttributeType;
use super::schema::{AttributeProto, GraphProto, TensorProto};

/// The attributes of one node. References to the attributes of an enclosing function are resolved.
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

    /// Returns the names and values of all attributes. An attribute that refers to an attribute of the enclosing
    /// function has its own name, and the value that the function's call gives.
    pub(super) fn list(&self) -> &[(&'m str, &'m AttributeProto)] {
        &self.list
    }

    /// Returns the attribute `name` and marks it as read. Fails if the attribute does not have type `kind`.
    fn typed(&self, name: &str, kind: AttributeType) -> Result<Option<&'m AttributeProto>, Refused> {
        let Some(at) = self.list.iter().position(|(n, _)| *n == name) else { return Ok(None) };
        let (_, attribute) = self.list[at];
        self.read.borrow_mut()[at] = true;
        // Files before IR version 2 leave the type out.
        match attribute.r#type {
            Some(t) if t != kind as i32 && t != AttributeType::Undefined as i32 => {
                Err(Refused::new(format!("attribute `{name}` does not have type {}", kind.as_str_name())))
            }
            _ => Ok(Some(attribute)),
        }
    }

    pub(super) fn int_opt(&self, name: &str) -> Result<Option<i64>, Refused> {
        Ok(self.typed(name, AttributeType::Int)?.map(|a| a.i()))
    }

    pub(super) fn int(&self, name: &str, default: i64) -> Result<i64, Refused> {
        Ok(self.int_opt(name)?.unwrap_or(default))
    }

    pub(super) fn flag(&self, name: &str, default: bool) -> Result<bool, Refused> {
        Ok(self.int_opt(name)?.map_or(default, |v| v != 0))
    }

    pub(super) fn float_opt(&self, name: &str) -> Result<Option<f32>, Refused> {
        Ok(self.typed(name, AttributeType::Float)?.map(|a| a.f()))
    }

    pub(super) fn float(&self, name: &str, default: f32) -> Result<f32, Refused> {
        Ok(self.float_opt(name)?.unwrap_or(default))
    }

    pub(super) fn ints_opt(&self, name: &str) -> Result<Option<&'m [i64]>, Refused> {
        Ok(self.typed(name, AttributeType::Ints)?.map(|a| a.ints.as_slice()))
    }

    /// Returns the attribute `name` as a list of `rank` sizes; all are `default` if the attribute is absent.
    pub(super) fn sizes(&self, name: &str, rank: usize, default: usize) -> Result<Vec<usize>, Refused> {
        let Some(values) = self.ints_opt(name)? else { return Ok(vec![default; rank]) };
        if values.len() != rank {
            return Err(Refused::new(format!(
                "attribute `{name}` has {} values; {rank} are needed",
                values.len()
            )));
        }
        values
            .iter()
            .map(|v| {
                usize::try_from(*v)
                    .map_err(|_| Refused::new(format!("attribute `{name}` contains the negative value {v}")))
            })
            .collect()
    }

    pub(super) fn floats_opt(&self, name: &str) -> Result<Option<&'m [f32]>, Refused> {
        Ok(self.typed(name, AttributeType::Floats)?.map(|a| a.floats.as_slice()))
    }

    pub(super) fn text(&self, name: &str, default: &'static str) -> Result<&'m str, Refused> {
        let Some(attribute) = self.typed(name, AttributeType::String)? else { return Ok(default) };
        std::str::from_utf8(attribute.s())
            .map_err(|_| Refused::new(format!("attribute `{name}` is not valid UTF-8")))
    }

    pub(super) fn texts_opt(&self, name: &str) -> Result<Option<Vec<&'m str>>, Refused> {
        let Some(attribute) = self.typed(name, AttributeType::Strings)? else { return Ok(None) };
        attribute
            .strings
            .iter()
            .map(|s| std::str::from_utf8(s))
            .collect::<Result<Vec<_>, _>>()
            .map(Some)
            .map_err(|_| Refused::new(format!("attribute `{name}` is not valid UTF-8")))
    }

    pub(super) fn tensor_opt(&self, name: &str) -> Result<Option<&'m TensorProto>, Refused> {
        Ok(self.typed(name, AttributeType::Tensor)?.and_then(|a| a.t.as_ref()))
    }

    pub(super) fn graph(&self, name: &str) -> Result<&'m GraphProto, Refused> {
        self.typed(name, AttributeType::Graph)?
            .and_then(|a| a.g.as_ref())
            .ok_or_else(|| Refused::new(format!("attribute `{name}`, a graph, is missing")))
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.list.iter().any(|(n, _)| *n == name)
    }

    /// Marks attributes as read that do not change the result of the node.
    pub(super) fn ignore(&self, names: &[&str]) {
        for (read, (name, _)) in self.read.borrow_mut().iter_mut().zip(&self.list) {
            *read |= names.contains(name);
        }
    }

    /// Returns the attributes that the lowering did not read.
    pub(super) fn unread(&self) -> Vec<&'m str> {
        let read = self.read.borrow();
        self.list.iter().zip(read.iter()).filter(|(_, read)| !**read).map(|((n, _), _)| *n).collect()
    }
}
