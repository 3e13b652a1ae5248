//! Container images of a machine: one that is imported, blob by blob as the machine asks for them; and the list.

use oci::{Blob, BlobDigest, ImageName, ImageOrigin, MANIFEST_TYPES};

use crate::field_error::{fixed, known, present};
use crate::{FieldError, Problem, wire};

/// Image that a machine is to take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageToImport {
    /// Name by which containers are to start.
    pub name: ImageName,
    /// Media type, one of [`MANIFEST_TYPES`].
    pub media_type: &'static str,
    /// Bytes of the manifest, not read yet.
    pub manifest: Vec<u8>,
}

/// Message from the caller of an import. The first is `Image`, all others are `Data`; the server holds callers to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImportPart {
    /// Take this image.
    Image(ImageToImport),
    /// Bytes of the blob that was asked for last.
    Data(Vec<u8>),
}

/// Image that a machine has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedImage {
    /// Name by which containers start.
    pub name: String,
    /// Digest of what the name stands for.
    pub digest: String,
    /// Bytes of its blobs; absent where the machine cannot tell.
    pub size: Option<u64>,
    /// Where it came from.
    pub origin: ImageOrigin,
}

impl From<ImportPart> for wire::ImportImageRequest {
    fn from(part: ImportPart) -> Self {
        let part = match part {
            ImportPart::Image(ImageToImport { name, media_type, manifest }) => {
                let (name, media_type) = (name.to_string(), media_type.to_owned());
                wire::import_image_request::Part::Image(wire::ImageToImport { name, media_type, manifest })
            }
            ImportPart::Data(data) => wire::import_image_request::Part::Data(data),
        };
        Self { part: Some(part) }
    }
}

impl TryFrom<wire::ImportImageRequest> for ImportPart {
    type Error = FieldError;

    fn try_from(request: wire::ImportImageRequest) -> Result<Self, FieldError> {
        match present("part", request.part)? {
            wire::import_image_request::Part::Data(data) => Ok(Self::Data(data)),
            wire::import_image_request::Part::Image(wire::ImageToImport { name, media_type, manifest }) => {
                let name = ImageName::parse(&name).map_err(|_| FieldError::new("name", Problem::Unusable))?;
                let media_type = known("media_type", MANIFEST_TYPES.into_iter().find(|known| *known == media_type))?;
                Ok(Self::Image(ImageToImport { name, media_type, manifest }))
            }
        }
    }
}

impl From<Blob> for wire::ImportImageResponse {
    fn from(blob: Blob) -> Self {
        Self { digest: blob.digest.0.to_vec(), size: blob.size }
    }
}

impl TryFrom<wire::ImportImageResponse> for Blob {
    type Error = FieldError;

    fn try_from(wanted: wire::ImportImageResponse) -> Result<Self, FieldError> {
        Ok(Self { digest: BlobDigest(fixed("digest", &wanted.digest)?), size: wanted.size })
    }
}

impl From<ListedImage> for wire::ListImagesResponse {
    fn from(image: ListedImage) -> Self {
        let ListedImage { name, digest, size, origin } = image;
        let origin = match origin {
            ImageOrigin::Carried => wire::ImageOrigin::Carried,
            ImageOrigin::Imported => wire::ImageOrigin::Imported,
            ImageOrigin::Pulled => wire::ImageOrigin::Pulled,
        };
        Self { name, digest, size, origin: origin.into() }
    }
}

impl TryFrom<wire::ListImagesResponse> for ListedImage {
    type Error = FieldError;

    fn try_from(image: wire::ListImagesResponse) -> Result<Self, FieldError> {
        let origin = match image.origin() {
            wire::ImageOrigin::Unspecified => None,
            wire::ImageOrigin::Carried => Some(ImageOrigin::Carried),
            wire::ImageOrigin::Imported => Some(ImageOrigin::Imported),
            wire::ImageOrigin::Pulled => Some(ImageOrigin::Pulled),
        };
        let wire::ListImagesResponse { name, digest, size, origin: _ } = image;
        Ok(Self { name, digest, size, origin: known("origin", origin)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image() -> ImageToImport {
        let name = ImageName::parse("quay.io/a/b:1").expect("a name");
        ImageToImport { name, media_type: MANIFEST_TYPES[0], manifest: b"{}".to_vec() }
    }

    #[test]
    fn parts_of_an_import_cross_the_wire_and_others_do_not() {
        for part in [ImportPart::Image(image()), ImportPart::Data(vec![1, 2])] {
            assert_eq!(ImportPart::try_from(wire::ImportImageRequest::from(part.clone())), Ok(part));
        }
        let field = |edit: fn(&mut wire::ImageToImport)| {
            let mut request = wire::ImportImageRequest::from(ImportPart::Image(image()));
            let Some(wire::import_image_request::Part::Image(inner)) = &mut request.part else { panic!("an image") };
            edit(inner);
            ImportPart::try_from(request).map_err(|wrong| wrong.field)
        };
        assert_eq!(field(|it| it.name = "A B".to_owned()), Err("name"));
        assert_eq!(field(|it| it.media_type = "text/html".to_owned()), Err("media_type"));
        assert!(field(|_| {}).is_ok());
        assert_eq!(ImportPart::try_from(wire::ImportImageRequest { part: None }).map_err(|it| it.field), Err("part"));
    }

    #[test]
    fn blobs_and_listed_images_cross_the_wire_as_they_are() {
        let blob = Blob { digest: BlobDigest::of(b"x"), size: 1 };
        assert_eq!(Blob::try_from(wire::ImportImageResponse::from(blob)), Ok(blob));
        for (size, origin) in
            [(None, ImageOrigin::Carried), (Some(7), ImageOrigin::Imported), (Some(0), ImageOrigin::Pulled)]
        {
            let listed = ListedImage { name: "a".to_owned(), digest: "sha256:b".to_owned(), size, origin };
            assert_eq!(ListedImage::try_from(wire::ListImagesResponse::from(listed.clone())), Ok(listed));
        }
    }
}
