//! Tensors of a model file as the file lists them, without their data.

use std::collections::BTreeMap;

/// Tensor that a checkpoint lists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedTensor {
    /// Name.
    pub name: String,
    /// Element type or encoding by the name that the file format gives it.
    pub element: String,
    /// Sizes, slowest varying first.
    pub shape: Vec<usize>,
    /// Number of bytes in the file; `None` if the encoding is not known.
    pub bytes: Option<u64>,
    /// True if the compiler can read the element type.
    pub supported: bool,
}

impl ListedTensor {
    /// Number of elements.
    pub fn elements(&self) -> u64 {
        self.shape.iter().fold(1u64, |n, size| n.saturating_mul(*size as u64))
    }
}

/// Tensors of one element type.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoredType {
    /// Name of the element type or encoding.
    pub element: String,
    /// Number of tensors.
    pub tensors: usize,
    /// Number of elements.
    pub elements: u64,
    /// Number of bytes. Tensors of an unknown encoding count as 0 bytes.
    pub bytes: u64,
}

impl StoredType {
    /// Creates an entry without tensors.
    pub fn new(element: impl Into<String>) -> Self {
        Self { element: element.into(), ..Self::default() }
    }

    /// Adds one tensor.
    pub fn add(&mut self, elements: u64, bytes: u64) {
        self.tensors += 1;
        self.elements = self.elements.saturating_add(elements);
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// Returns the entries, largest first.
    pub fn sorted(entries: BTreeMap<String, Self>) -> Vec<Self> {
        let mut list: Vec<Self> = entries.into_values().collect();
        list.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.element.cmp(&b.element)));
        list
    }

    /// Groups listed tensors by element type, largest first.
    pub fn group(tensors: &[ListedTensor]) -> Vec<Self> {
        let mut entries: BTreeMap<String, Self> = BTreeMap::new();
        for tensor in tensors {
            let entry = entries.entry(tensor.element.clone()).or_insert_with(|| Self::new(&tensor.element));
            entry.add(tensor.elements(), tensor.bytes.unwrap_or(0));
        }
        Self::sorted(entries)
    }
}
