//! `cargo xtask conformance`: upstream's conformance specs against a cluster of two machines, made and reached by the user's tool.
//! Machines are reached by that tool alone, and results of specs that have ended are never lost.
//!
//! ```text
//!   image, tool, upstream's tests, their images ► cluster (--resume: the one that runs, of the same image) ► import
//!      ► tunnel ► spec ► result kept ─┬─► next
//!                                     └─► counts, names of what failed
//! ```
//! All of it lies in `target/conformance`: results, a log for each spec, the images, and what the cluster was made from.

mod images;
mod left_out;
mod results;
mod suite;

use std::{
    fs,
    io::{self, BufRead, BufReader, Write, stdout},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Stdio},
    time::{SystemTime, UNIX_EPOCH},
};

use ::image::{ImageProfile, RootProgram};
use ::tests::specs::SpecProgram;
use anyhow::{Context, Result, bail};
use clap::Args;
use xtask::{
    cache::BuildCache,
    digest::DigestInputs,
    progress::{say, step, talking_step},
    workspace::Workspace,
};

use self::{
    images::Built,
    results::{SpecCounts, SpecOutcome, SpecResult, SpecResults, Specs},
};
use crate::{
    ci::Failed,
    cluster_tool::Tool,
    component::Component,
    components,
    image::{self, Wanted},
    programs::Build,
};

/// The name of the cluster; only this command uses it.
const CLUSTER: &str = "conformance";
/// How its machines are made. Preemption and daemon sets need two that run pods.
const MACHINES: &str = "--machines 2 --memory 2560M --cpus 2 --disk-size 12G --level encrypted --boot direct --wait";
const READY: &str = "--for=condition=Ready";
/// Full names and ends of all specs, for whoever asks which.
const LINES: &str = "docs/measured/conformance.txt";

/// Which specs are run, and how.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Run only specs whose name matches, by Go's regular expressions
    #[arg(long, value_name = "REGEX")]
    focus: Option<String>,
    /// Go on with the cluster of an earlier run, if it is of the same image, and run what has not passed yet
    #[arg(long)]
    resume: bool,
    /// Run nothing: print the results so far as Markdown, and write them by name to docs/measured/conformance.txt
    #[arg(long, conflicts_with_all = ["focus", "resume"])]
    print: bool,
    /// How to compile the machine's own programs
    #[arg(long, value_enum, default_value = "release")]
    build: Build,
}

/// Runs specs, or prints results.
///
/// # Errors
/// Any step's; [`Failed`] where all ran and some did not pass.
pub(crate) fn conformance(workspace: &Workspace, cache: &BuildCache, options: &Options) -> Result<()> {
    let room = Room::of(workspace)?;
    if options.print {
        return print(workspace, &room, &upstream(workspace, cache)?);
    }
    images::check_host()?;
    let folder = workspace.path("out/image");
    let wanted = Wanted::plain(ImageProfile::Release, options.build);
    let image = image::Known::of(workspace, cache, &wanted, folder.clone())?;
    image.complete()?;
    let tool = Tool::build(workspace, cache, &folder, CLUSTER)?;
    let upstream = upstream(workspace, cache)?;
    images::check_names(&suite::images(&executable(&upstream, "e2e.test"))?)?;

    let specs = room.specs(&upstream, options.focus.as_deref())?;
    // Those of specs that are not asked about now stay as they are.
    let anew = !options.resume && options.focus.is_none();
    let mut results = if anew { SpecResults::default() } else { SpecResults::read(&room.results())? };
    let open: Vec<String> = match options.resume {
        true => results.open(&specs).map(str::to_owned).collect(),
        false => specs.to_run().cloned().collect(),
    };
    let root_hash = image.manifest.verity.root_hash.clone();
    if !open.is_empty() {
        let pause = image.program(RootProgram::Pause).context("the image has no pause program")?;
        let source = components::e2e_source(workspace)?.join("test/images/agnhost");
        let built = Built { agnhost: &executable(&upstream, "agnhost"), pause, agnhost_source: &source };
        cluster(&room, &tool, &built, &root_hash, options.resume)?;
        let tunnel = Tunnel::open(&tool, &room.path("kubeconfig"))?;
        let program = SpecProgram {
            program: executable(&upstream, "e2e.test"),
            kubectl: tool.kubectl,
            kubeconfig: tunnel.kubeconfig.clone(),
        };
        let mut keep = |name: &str, result| {
            results.put(name, result);
            results.write(&room.results())
        };
        run(&room, &program, &root_hash, &open, &mut keep)?;
    }
    verdict(&specs, &results)
}

/// Upstream's tests, from the cache or built.
fn upstream(workspace: &Workspace, cache: &BuildCache) -> Result<Component> {
    if components::e2e_cached(workspace, cache)?.is_none() {
        say("▸ upstream's tests are not in the cache: building them takes up to half an hour");
    }
    components::e2e(workspace, cache)
}

fn executable(component: &Component, name: &str) -> PathBuf {
    component.folder.join(name)
}

/// Runs specs one by one; `keep` takes each result as it comes.
fn run(
    room: &Room,
    program: &SpecProgram,
    root_hash: &str,
    names: &[String],
    keep: &mut dyn FnMut(&str, SpecResult) -> Result<()>,
) -> Result<()> {
    say(format_args!("▸ conformance: {} specs, one after the other", names.len()));
    for (index, name) in names.iter().enumerate() {
        let end = suite::run(program, name, &room.log(name))?;
        let word = match end.outcome {
            SpecOutcome::Passed => "✓",
            SpecOutcome::Failed => "✗",
            SpecOutcome::Skipped => "-",
        };
        say(format_args!("{word} {}/{} {:.0} s  {name}", index + 1, names.len(), end.seconds));
        if let Some(reason) = &end.reason {
            say(format_args!("    {reason}"));
        }
        let image = root_hash.to_owned();
        let result = SpecResult { outcome: end.outcome, reason: end.reason, seconds: end.seconds, ended: now(), image };
        keep(name, result)?;
    }
    Ok(())
}

/// Says how the specs ended.
fn verdict(specs: &Specs, results: &SpecResults) -> Result<()> {
    let SpecCounts { passed, failed, skipped, missing: _none_without_an_error } = results.counts(specs);
    for name in results.failed(specs) {
        say(format_args!("failed: {name}"));
    }
    say(format_args!("the cluster stays; `cairnctl cluster destroy {CLUSTER} --yes` takes it away"));
    say(format_args!("{passed} passed, {failed} failed, {skipped} skipped"));
    if failed > 0 { Err(Failed.into()) } else { Ok(()) }
}

/// Prints what is known as Markdown, and writes every spec's end into a file.
fn print(workspace: &Workspace, room: &Room, upstream: &Component) -> Result<()> {
    let (specs, results) = (room.specs(upstream, None)?, SpecResults::read(&room.results())?);
    let path = workspace.path(LINES);
    fs::write(&path, results.lines(&specs)).with_context(|| format!("write `{}`", path.display()))?;
    say(format_args!("  wrote `{LINES}`"));
    let head = format!("Kubernetes {}, conformance specs:\n\n", upstream.version);
    write!(stdout(), "{head}{}", results.markdown(&specs)).context("print the results")
}

/// Has a cluster of this image run, with the images of the specs in it.
fn cluster(room: &Room, tool: &Tool, built: &Built<'_>, root_hash: &str, resume: bool) -> Result<()> {
    let archives = step("images", "writing", || images::write(built, &room.path("images")))?;
    let mut inputs = DigestInputs::new("conformance").text("machines", MACHINES).text("root", root_hash);
    for archive in &archives {
        inputs = inputs.file(&archive.to_string_lossy(), archive)?;
    }
    let (made_from, origin) = (room.path("made-from"), inputs.finish()?.to_string());
    let same = resume && fs::read_to_string(&made_from).is_ok_and(|found| found == origin) && tool.is_there()?;
    if same {
        say(format_args!("▸ cluster: going on with `{CLUSTER}`"));
        let wait = ["kubectl", "--cluster", CLUSTER, "--", "wait", READY, "nodes", "--all", "--timeout=300s"];
        match tool.tried(&wait)? {
            Ok(()) => return Ok(()),
            Err(reason) => say(format_args!("! it does not answer, and is made anew: {reason}")),
        }
    }
    // It is none of this origin from here on, until all images are in it.
    remove_if_there(&made_from)?;
    tool.take_away()?;
    talking_step("cluster", "booting two machines, until their nodes are Ready", || {
        let create = ["cluster", "create", CLUSTER].into_iter();
        tool.run(&create.chain(MACHINES.split_whitespace()).collect::<Vec<_>>())
    })?;
    talking_step("images", "importing into both machines", || {
        archives.iter().try_for_each(|archive| {
            tool.run(&["image", "import", &archive.to_string_lossy(), "--all", "--cluster", CLUSTER])
        })
    })?;
    fs::write(&made_from, origin).with_context(|| format!("write `{}`", made_from.display()))
}

/// Folder of this command.
#[derive(Debug)]
struct Room(PathBuf);

impl Room {
    fn of(workspace: &Workspace) -> Result<Self> {
        let room = Self(workspace.target().join("conformance"));
        fs::create_dir_all(room.path("logs")).with_context(|| format!("create `{}`", room.0.display()))?;
        Ok(room)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn results(&self) -> PathBuf {
        self.path("results.json")
    }

    /// Log of a spec; a file's name has no slash and at most 255 bytes.
    fn log(&self, name: &str) -> PathBuf {
        let plain = |letter: char| if letter.is_ascii_alphanumeric() { letter } else { '-' };
        let name: String = name.trim_start_matches('[').chars().take(240).map(plain).collect();
        self.path("logs").join(format!("{name}.log"))
    }

    /// The specs of upstream's tests, with those that are left out.
    fn specs(&self, upstream: &Component, focus: Option<&str>) -> Result<Specs> {
        let log = self.path("list.log");
        remove_if_there(&log)?;
        let program = executable(upstream, "e2e.test");
        let specs = left_out::judged(suite::names(&program, focus, &self.path("list.json"), &log)?);
        if focus.is_none() {
            left_out::check(&specs)?;
        }
        Ok(specs)
    }
}

/// The user's kubeconfig and its tunnel; both end with this value.
struct Tunnel {
    child: Child,
    kubeconfig: PathBuf,
    /// Open as long as it runs: it must not find that nobody reads.
    output: BufReader<ChildStdout>,
}

impl Tunnel {
    fn open(tool: &Tool, kubeconfig: &Path) -> Result<Self> {
        let mut command =
            tool.cairnctl(&["kubeconfig", "--cluster", CLUSTER, "--force", "--out", &kubeconfig.to_string_lossy()]);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().context("start cairnctl")?;
        let output = BufReader::new(child.stdout.take().context("its output is a pipe")?);
        let mut tunnel = Self { child, kubeconfig: kubeconfig.to_owned(), output };
        // Its only line says that the file is there and the tunnel listens.
        let mut line = String::new();
        match tunnel.output.read_line(&mut line).context("read what cairnctl says")? {
            0 => bail!("the tunnel to the cluster did not open"),
            _ => say(format_args!("  {}", line.trim_end())),
        }
        Ok(tunnel)
    }
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        // A child that has ended already cannot be killed and need not be; it may have removed the file itself.
        let (_killed, _reaped) = (self.child.kill(), self.child.wait());
        let _gone_either_way = fs::remove_file(&self.kubeconfig);
    }
}

fn remove_if_there(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("remove `{}`", path.display()))
        }
        Ok(()) | Err(_) => Ok(()), // gone either way
    }
}

/// Unix time, in seconds.
#[expect(clippy::disallowed_methods, reason = "noted beside a result; nothing is decided by it")]
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}
