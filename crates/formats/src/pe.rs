//! PE32+ images: their sections, and new sections behind them.
//!
//! Owns the headers' layout (Microsoft, "PE Format", sections "COFF File Header", "Optional Header", "Section Table").
//! Knows nothing of what a section means (that is [`crate::uki`]) and must never trust an offset it was given.

/// New sections begin on a page: systemd's stub hands them to the kernel where they lie.
const PAGE: u32 = 4096;
/// Bytes of a row of the section table.
const ROW: usize = 40;
/// `IMAGE_SCN_CNT_INITIALIZED_DATA | IMAGE_SCN_MEM_READ`.
const READ_ONLY_DATA: u32 = 0x4000_0040;

/// An image whose headers and section table lie inside it.
#[derive(Debug, Clone)]
pub struct Pe<'a> {
    bytes: &'a [u8],
    headers: Headers,
    sections: Vec<Section<'a>>,
}

/// Section of a PE file: name without the padding, address where it is loaded, and content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Section<'a> {
    /// Up to eight bytes of text.
    pub name: &'a str,
    /// Address relative to the image's base.
    pub address: u32,
    /// The content, as long as it is in memory (or in the file, where that is shorter).
    pub data: &'a [u8],
}

#[derive(Debug, Clone, Copy)]
struct Headers {
    /// Offset of the COFF file header.
    coff: usize,
    /// Offset of the optional header.
    optional: usize,
    /// Offset of the section table.
    table: usize,
    file_alignment: u32,
    /// Offset where the headers end and the first section's bytes may begin.
    end: usize,
    /// Offset where the last section's bytes end.
    data_end: usize,
}

/// Why bytes are no PE32+ image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadPe {
    /// No `MZ` and `PE` where they belong.
    #[error("no PE signature")]
    Signature,
    /// Not the 64-bit form.
    #[error("not a PE32+ image")]
    Not64Bit,
    /// A header, the section table or a section, as named, points outside the file.
    #[error("{what} lies outside the file")]
    Outside { what: &'static str },
    /// An alignment that is no power of two between 512 and 64 Ki.
    #[error("file alignment {0} is no power of two between 512 and 65536")]
    Alignment(u32),
    /// A section's name is no text.
    #[error("a section's name is not text")]
    Name,
}

impl<'a> Pe<'a> {
    /// Reads the headers and the section table.
    ///
    /// # Errors
    /// [`BadPe`] names the first thing that is wrong.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, BadPe> {
        if bytes.get(..2) != Some(b"MZ") {
            return Err(BadPe::Signature);
        }
        let signature = offset(read_u32(bytes, 0x3c, "the DOS header")?);
        if bytes.get(signature..signature.saturating_add(4)) != Some(b"PE\0\0") {
            return Err(BadPe::Signature);
        }
        let coff = signature + 4;
        let count = read_u16(bytes, coff + 2, "the COFF header")?;
        let optional = coff + 20;
        let table = optional + usize::from(read_u16(bytes, coff + 16, "the COFF header")?);
        if read_u16(bytes, optional, "the optional header")? != 0x20b {
            return Err(BadPe::Not64Bit);
        }
        let file_alignment = read_u32(bytes, optional + 36, "the optional header")?;
        if !file_alignment.is_power_of_two() || !(512..=65536).contains(&file_alignment) {
            return Err(BadPe::Alignment(file_alignment));
        }
        let end = offset(read_u32(bytes, optional + 60, "the optional header")?);
        let rows =
            bytes.get(table..table + usize::from(count) * ROW).ok_or(BadPe::Outside { what: "the section table" })?;
        let mut headers = Headers { coff, optional, table, file_alignment, end, data_end: end };
        let mut sections = Vec::new();
        for row in rows.chunks_exact(ROW) {
            let (section, section_end) = section(bytes, row)?;
            headers.data_end = headers.data_end.max(section_end);
            sections.push(section);
        }
        if bytes.len() < headers.data_end {
            return Err(BadPe::Outside { what: "the end of the headers" });
        }
        Ok(Self { bytes, headers, sections })
    }

    /// All sections in the order of the table.
    #[must_use]
    pub fn sections(&self) -> &[Section<'a>] {
        &self.sections
    }

    /// The content of the section `name`, if there is one.
    #[must_use]
    pub fn section(&self, name: &str) -> Option<&'a [u8]> {
        self.sections.iter().find(|section| section.name == name).map(|section| section.data)
    }

    /// The image with `added` sections behind its own, each on its own pages, read-only.
    ///
    /// The COFF symbol table is dropped and the checksum cleared (UEFI reads neither), so the result depends on nothing
    /// but the sections.
    ///
    /// # Errors
    /// [`CannotAppend`] when a name or a size does not fit.
    pub fn append(&self, added: &[(&str, &[u8])]) -> Result<Vec<u8>, CannotAppend> {
        let Headers { coff, optional, table, file_alignment, end, data_end } = self.headers;
        let rows = self.sections.len() + added.len();
        if table + rows * ROW > end {
            return Err(CannotAppend::TableFull);
        }
        let count = u16::try_from(rows).map_err(|_| CannotAppend::TableFull)?;
        let too_large = |_| CannotAppend::TooLarge;
        let mut image = self.bytes[..data_end].to_vec();
        let mut address = self.loaded_end();
        let mut stored: u32 = 0;
        for (index, (name, content)) in added.iter().enumerate() {
            if name.is_empty() || name.len() > 8 || self.section(name).is_some() {
                return Err(CannotAppend::Name((*name).to_owned()));
            }
            image.resize(image.len().next_multiple_of(offset(file_alignment)), 0);
            let size = u32::try_from(content.len()).map_err(too_large)?;
            let size_stored = size.checked_next_multiple_of(file_alignment).ok_or(CannotAppend::TooLarge)?;
            let at = u32::try_from(image.len()).map_err(too_large)?;
            address = address.checked_next_multiple_of(PAGE).ok_or(CannotAppend::TooLarge)?;

            let row = &mut image[table + (self.sections.len() + index) * ROW..][..ROW];
            row.fill(0);
            row[..name.len()].copy_from_slice(name.as_bytes());
            for (field, value) in [(8, size), (12, address), (16, size_stored), (20, at), (36, READ_ONLY_DATA)] {
                row[field..field + 4].copy_from_slice(&value.to_le_bytes());
            }
            image.extend_from_slice(content);
            image.resize(offset(at) + offset(size_stored), 0);
            address = address.checked_add(size).ok_or(CannotAppend::TooLarge)?;
            stored = stored.checked_add(size_stored).ok_or(CannotAppend::TooLarge)?;
        }
        let image_size = address.checked_next_multiple_of(PAGE).ok_or(CannotAppend::TooLarge)?;
        let initialized = u32_at(&image, optional + 8).saturating_add(stored);
        image[coff + 2..coff + 4].copy_from_slice(&count.to_le_bytes());
        image[coff + 8..coff + 16].fill(0); // symbol table: pointer and count
        for (field, value) in [(8, initialized), (56, image_size), (64, 0)] {
            image[optional + field..][..4].copy_from_slice(&value.to_le_bytes());
        }
        Ok(image)
    }

    /// The address behind the last section in memory.
    fn loaded_end(&self) -> u32 {
        let rows = self.bytes[self.headers.table..].chunks_exact(ROW).take(self.sections.len());
        rows.map(|row| u32_at(row, 12).saturating_add(u32_at(row, 8))).max().unwrap_or(0)
    }
}

/// Why sections cannot be appended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CannotAppend {
    /// The headers have no room for more rows.
    #[error("the section table has no room for more sections")]
    TableFull,
    /// Empty, longer than eight bytes, or taken.
    #[error("section name `{0}` is empty, longer than eight bytes or taken")]
    Name(String),
    /// The image would pass 4 GiB.
    #[error("the image would pass 4 GiB")]
    TooLarge,
}

/// A section and where its bytes end in the file.
fn section<'a>(bytes: &'a [u8], row: &'a [u8]) -> Result<(Section<'a>, usize), BadPe> {
    let name_end = row[..8].iter().position(|&byte| byte == 0).unwrap_or(8);
    let name = std::str::from_utf8(&row[..name_end]).map_err(|_| BadPe::Name)?;
    let (in_memory, address) = (offset(u32_at(row, 8)), u32_at(row, 12));
    let (in_file, at) = (offset(u32_at(row, 16)), offset(u32_at(row, 20)));
    let stored = bytes.get(at..at.saturating_add(in_file)).ok_or(BadPe::Outside { what: "a section" })?;
    let end = if in_file == 0 { 0 } else { at + in_file };
    Ok((Section { name, address, data: &stored[..in_file.min(in_memory)] }, end))
}

fn read_u16(bytes: &[u8], at: usize, what: &'static str) -> Result<u16, BadPe> {
    let field = bytes.get(at..).and_then(|rest| rest.first_chunk()).ok_or(BadPe::Outside { what })?;
    Ok(u16::from_le_bytes(*field))
}

fn read_u32(bytes: &[u8], at: usize, what: &'static str) -> Result<u32, BadPe> {
    let field = bytes.get(at..).and_then(|rest| rest.first_chunk()).ok_or(BadPe::Outside { what })?;
    Ok(u32::from_le_bytes(*field))
}

/// A field of headers whose length was checked when they were parsed.
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(*bytes[at..].first_chunk().expect("inside headers that were checked"))
}

fn offset(value: u32) -> usize {
    usize::try_from(value).expect("addresses have at least 32 bits on every host")
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The smallest image with one section `.text` of `text`, and room for seven more.
    pub(crate) fn stub(text: &[u8]) -> Vec<u8> {
        let mut image = vec![0; 512];
        let mut put = |at: usize, bytes: &[u8]| image[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, b"MZ");
        put(0x3c, &64u32.to_le_bytes());
        put(64, b"PE\0\0");
        put(68, &0x8664u16.to_le_bytes());
        put(70, &1u16.to_le_bytes());
        put(76, &1024u32.to_le_bytes()); // a symbol table behind the section
        put(80, &3u32.to_le_bytes());
        put(84, &112u16.to_le_bytes());
        put(88, &0x20bu16.to_le_bytes());
        put(88 + 36, &512u32.to_le_bytes());
        put(88 + 60, &512u32.to_le_bytes());
        put(200, b".text");
        let size = u32::try_from(text.len()).expect("small");
        for (at, value) in [(8, size), (12, 4096), (16, size.next_multiple_of(512)), (20, 512)] {
            put(200 + at, &value.to_le_bytes());
        }
        image.extend_from_slice(text);
        image.resize(image.len().next_multiple_of(512), 0);
        image.extend_from_slice(b"symbols");
        image
    }

    #[test]
    fn appended_sections_lie_on_their_own_pages_and_read_back() {
        let stub = stub(&[0x90; 600]);
        let large = vec![7; 5000];
        let image = Pe::parse(&stub).expect("a stub").append(&[(".one", b"1"), (".large", &large)]).expect("room");
        let pe = Pe::parse(&image).expect("an image");
        let places: Vec<_> = pe.sections().iter().map(|section| (section.name, section.address)).collect();
        assert_eq!(places, [(".text", 4096), (".one", 8192), (".large", 12288)]);
        assert_eq!(pe.section(".text"), Some(&[0x90; 600][..]));
        assert_eq!(pe.section(".one"), Some(&b"1"[..]));
        assert_eq!(pe.section(".large"), Some(&large[..]));
        assert_eq!(pe.section(".none"), None);
        assert_eq!(u32_at(&image, 88 + 56), 20480, "size of the image in memory");
        assert_eq!(image.len(), 512 + 1024 + 512 + 5120, "headers, text, one, large; no symbols");
        assert_eq!(image[76..84], [0; 8], "no symbol table");
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let stub = stub(b"x");
        let pe = Pe::parse(&stub).expect("a stub");
        for name in ["", ".too-long", ".text"] {
            assert_eq!(pe.append(&[(name, b"")]), Err(CannotAppend::Name(name.to_owned())));
        }
        let names: Vec<_> = (0..7).map(|index| format!(".{index}")).collect();
        let rows: Vec<_> = names.iter().map(|name| (name.as_str(), &b""[..])).collect();
        assert!(pe.append(&rows[..6]).is_ok());
        assert_eq!(pe.append(&rows), Err(CannotAppend::TableFull));
    }

    #[test]
    fn damaged_headers_are_named() {
        let good = stub(b"x");
        let damaged = |at: usize, bytes: &[u8]| {
            let mut image = good.clone();
            image[at..at + bytes.len()].copy_from_slice(bytes);
            Pe::parse(&image).expect_err("damaged")
        };
        assert_eq!(damaged(0, b"ZM"), BadPe::Signature);
        assert_eq!(damaged(0x3c, &[0xff; 4]), BadPe::Signature);
        assert_eq!(damaged(88, &[0x0b, 0x01]), BadPe::Not64Bit);
        assert_eq!(damaged(88 + 36, &[0; 4]), BadPe::Alignment(0));
        assert_eq!(damaged(70, &[0xff; 2]), BadPe::Outside { what: "the section table" });
        assert_eq!(damaged(220, &[0xff; 4]), BadPe::Outside { what: "a section" });
        assert_eq!(damaged(200, &[0xff; 8]), BadPe::Name);
        assert_eq!(Pe::parse(b"MZ").expect_err("short"), BadPe::Outside { what: "the DOS header" });
    }

    proptest! {
        #[test]
        fn no_damage_panics(at in 0usize..1024, byte: u8, length in 0usize..1031) {
            let mut image = stub(b"x");
            image[at] = byte;
            image.truncate(length);
            if let Ok(pe) = Pe::parse(&image) {
                let _ = pe.append(&[(".one", b"1")]);
            }
        }
    }
}
