//! The context that a case gets: its directory, its deadlines, its machines.

use std::any::Any;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use anyhow::anyhow;
use qemu::Deadline;

use crate::FleetKind;
use crate::image::Image;
use crate::owner::Owner;
use crate::plan::MachinePlan;
use crate::premises::Premises;

/// Directory, deadlines and machines of a case.
#[derive(Debug, Clone)]
pub struct Context {
    premises: Arc<Premises>,
    dir: PathBuf,
    /// The case's.
    file: &'static str,
}

impl Context {
    pub(crate) fn new(premises: Arc<Premises>, dir: PathBuf, file: &'static str) -> Self {
        Self { premises, dir, file }
    }

    /// Where the case's files lie: removed when it passes.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Folder of a fleet.
    pub(crate) fn fleet(&self, kind: FleetKind) -> PathBuf {
        self.premises.fleet(kind)
    }

    /// The image under test.
    #[must_use]
    pub fn image(&self) -> &Image {
        self.premises.image()
    }

    /// A deadline of `seconds` on a host with KVM, stretched elsewhere.
    #[must_use]
    pub fn within(&self, seconds: u64) -> Deadline {
        Deadline::after(self.premises.pace().stretch(seconds))
    }

    /// Prints what was measured, for whoever keeps SPECIFICATION.md true.
    #[expect(clippy::print_stderr, reason = "what a person reads")]
    pub fn measured(&self, what: &str) {
        eprintln!("measured: {what}");
    }

    /// The usual machine, to be changed and started; `name` is its directory.
    #[must_use]
    pub fn machine(&self, name: &str) -> MachinePlan {
        MachinePlan::new(name, self.image(), self.dir.join(name))
    }

    /// The same with an image of the debug profile, which has faults to inject.
    ///
    /// # Errors
    /// When the environment names none.
    pub fn debug_machine(&self, name: &str) -> anyhow::Result<MachinePlan> {
        Ok(MachinePlan::new(name, &Image::debug_of_environment()?, self.dir.join(name)))
    }

    /// The owner of the case's machines.
    ///
    /// # Errors
    /// When the environment names no `cairnctl`.
    pub fn owner(&self) -> anyhow::Result<Owner> {
        Owner::new(self.dir.join("owner"))
    }

    /// Something costly that the cases of a file share: built by the first that asks, ended with the last case of the file.
    /// Only one case at a time can hold it, and should leave it as the next expects it. Where building failed, each case
    /// that asks fails.
    ///
    /// # Errors
    /// What `build` said; another type under the same name.
    pub fn shared<T: Any + Send>(
        &self,
        name: &'static str,
        build: impl FnOnce(&Self) -> anyhow::Result<T>,
    ) -> anyhow::Result<Arc<Mutex<T>>> {
        let slot = self.premises.shared(self.file, name);
        let built = slot.get_or_init(|| {
            let dir = self.premises.dir_of(&format!("{} {name}", self.file));
            let context = Self { premises: Arc::clone(&self.premises), dir, file: self.file };
            build(&context).map(|value| Arc::new(Mutex::new(value)) as Arc<dyn Any + Send + Sync>)
        });
        match built {
            Ok(value) => Arc::clone(value).downcast().map_err(|_| anyhow!("`{name}` is shared as another type")),
            Err(error) => Err(anyhow!("build what is shared as `{name}`: {error:#}")),
        }
    }
}
