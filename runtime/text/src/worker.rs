//! Processes for work on texts that nothing inside of a process can stop.
//!
//! What a tokenizer's normaliser or a grammar's compiler takes is up to what clients send, and the
//! crates that do it look at no flag. So what may take long (`tame` says what may not) is done by a
//! worker: this very program in another mode, with the model's text files loaded again. Going over
//! its budget of memory ends the process, its parent kills it at the limit of time, and either
//! gives all of it back. The next piece of work finds a fresh one.
//!
//! A model's workers are started when first needed, at most `WORKERS_MAX`, and end when they were
//! idle for `IDLE_LIMIT`. They are executed, never forked: the parent has threads, and maybe a GPU.

use std::hash::{DefaultHasher, Hasher};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Weak};
use std::time::{Duration, Instant};

use crate::bounded::{self, Overrun, EXIT_OVER_MEMORY};
use crate::error::{Code, Result, TextError};
use crate::files::open_regular;
use crate::wire::{read_frame, write_frame, Reader, Writer};

/// What the program is told to be a worker.
const WORKER_FLAG: &str = "--text-worker";
/// At once, for one model: as many as requests are prepared at once that may need one.
const WORKERS_MAX: usize = 4;
/// A worker that had nothing to do for so long ends, and its memory is free.
const IDLE_LIMIT: Duration = Duration::from_secs(60);
const IDLE_LOOK: Duration = Duration::from_secs(5);
/// Loading the model's text files again; 256,000 tokens take a second.
const START_LIMIT: Duration = Duration::from_secs(60);
/// So much later than the last limit of its work a worker is killed that did not end by itself.
const KILL_GRACE: Duration = Duration::from_secs(2);
const POLL: Duration = Duration::from_millis(20);
/// Work that took longer is not waited for when its caller is gone.
const GONE_GRACE: Duration = Duration::from_millis(500);

/// Kinds of work, as they go over the wire.
pub const ENCODE: u64 = 1;
pub const ENCODE_CHAT: u64 = 2;
pub const COMPILE: u64 = 3;
pub const ENCODE_PROMPT: u64 = 4;
/// Kinds of answers: done, refused, and refused by a worker that ends now.
pub const DONE: u64 = 0;
pub const REFUSED: u64 = 1;
pub const OVER_TIME: u64 = 2;

static PROGRAM: Mutex<Option<PathBuf>> = Mutex::new(None);

/// From here on work that may take long is done by processes of `program`; empty: of this very one.
pub fn use_program(program: PathBuf) {
    let program = match program.as_os_str().is_empty() {
        true => own_program(),
        false => Some(program),
    };
    *PROGRAM.lock().unwrap_or_else(|e| e.into_inner()) = program;
}

fn own_program() -> Option<PathBuf> {
    // What runs, even where its file was replaced since.
    let running = Path::new("/proc/self/exe");
    if running.exists() {
        return Some(running.to_path_buf());
    }
    std::env::current_exe().ok()
}

fn program() -> Option<PathBuf> {
    if bounded::is_worker() {
        return None;
    }
    PROGRAM.lock().unwrap_or_else(|e| e.into_inner()).clone()
}

/// What tells whether a model's text files are still those that were loaded.
pub fn digest_of(folder: &Path) -> u64 {
    const FILES: [&str; 8] = [
        "tokenizer.json",
        "tokenizer_config.json",
        "special_tokens_map.json",
        "generation_config.json",
        "config.json",
        "chat_template.jinja",
        "chat_template.json",
        "additional_chat_templates/tool_use.jinja",
    ];
    let mut hasher = DefaultHasher::new();
    let mut block = vec![0; 1 << 16];
    for name in FILES {
        let mut size = 0u64;
        if let Ok(Some((mut file, _))) = open_regular(&folder.join(name)) {
            while let Ok(count @ 1..) = io::Read::read(&mut file, &mut block) {
                hasher.write(&block[..count]);
                size += count as u64;
            }
        }
        hasher.write_u64(size);
    }
    hasher.finish()
}

/// The workers of one model.
pub struct Pool {
    folder: PathBuf,
    digest: u64,
    state: Mutex<State>,
    freed: Condvar,
}

#[derive(Default)]
struct State {
    idle: Vec<Worker>,
    /// Idle ones and those at work.
    alive: usize,
    is_watched: bool,
}

struct Worker {
    process: Child,
    socket: UnixStream,
    used: Instant,
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// How a worker's answer failed to come.
enum Silence {
    Overrun(Overrun),
    /// It had ended before it took the work.
    Gone,
    Failed(TextError),
}

impl Pool {
    pub fn of(folder: &Path) -> Arc<Pool> {
        Arc::new(Pool {
            folder: folder.to_path_buf(),
            digest: digest_of(folder),
            state: Mutex::default(),
            freed: Condvar::new(),
        })
    }

    /// Whether there is a program for workers; in a worker there is none.
    pub fn is_usable(&self) -> bool {
        program().is_some()
    }

    /// What a worker answers to `request`, which takes it `limit` at most once it has begun; on a
    /// machine that gave it little time, `LIMITS_MAX` times as long.
    pub fn ask(
        self: &Arc<Self>,
        request: &[u8],
        limit: Duration,
    ) -> std::result::Result<Result<Vec<u8>>, Overrun> {
        // The worker that was idle may have ended just now; a second one is fresh.
        for _ in 0..2 {
            let mut worker = match self.acquire(limit) {
                Ok(worker) => worker,
                Err(e) => return Ok(Err(e)),
            };
            match worker.ask(request, limit) {
                Ok((answer, goes_on)) => {
                    self.release(goes_on.then_some(worker));
                    return Ok(answer);
                }
                Err(silence) => {
                    drop(worker);
                    self.release(None);
                    match silence {
                        Silence::Overrun(over) => return Err(over),
                        Silence::Failed(e) => return Ok(Err(e)),
                        Silence::Gone => {}
                    }
                }
            }
        }
        Ok(Err(failed("a process for long texts ended as soon as it was started")))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn acquire(self: &Arc<Self>, limit: Duration) -> Result<Worker> {
        let until = Instant::now() + limit;
        let mut state = self.lock();
        loop {
            if let Some(worker) = state.idle.pop() {
                return Ok(worker);
            }
            if state.alive < WORKERS_MAX {
                break;
            }
            if Instant::now() >= until || bounded::caller_is_gone() {
                let busy = "all processes for long texts of this model are busy; retry after 2 s";
                return Err(TextError::new(Code::Unavailable, busy));
            }
            state = self.freed.wait_timeout(state, POLL).unwrap_or_else(|e| e.into_inner()).0;
        }
        state.alive += 1;
        drop(state);
        let started = Worker::start(&self.folder, self.digest);
        if started.is_err() {
            self.release(None);
        }
        started
    }

    /// Takes a worker back; none: one has ended.
    fn release(self: &Arc<Self>, worker: Option<Worker>) {
        let mut state = self.lock();
        match worker {
            Some(mut worker) => {
                worker.used = Instant::now();
                state.idle.push(worker);
            }
            None => state.alive -= 1,
        }
        self.freed.notify_one();
        if !state.is_watched && !state.idle.is_empty() {
            let pool = Arc::downgrade(self);
            let watch = move || end_idle_workers(pool);
            let thread = std::thread::Builder::new().name("macrame-text".into()).spawn(watch);
            state.is_watched = thread.is_ok();
        }
    }
}

/// Until there are none.
fn end_idle_workers(pool: Weak<Pool>) {
    loop {
        std::thread::sleep(IDLE_LOOK);
        let Some(pool) = pool.upgrade() else { return };
        let mut state = pool.lock();
        let (kept, ended): (Vec<_>, Vec<_>) =
            state.idle.drain(..).partition(|worker| worker.used.elapsed() < IDLE_LIMIT);
        state.idle = kept;
        state.alive -= ended.len();
        state.is_watched = !state.idle.is_empty();
        let is_over = !state.is_watched;
        drop(state);
        drop(ended);
        if is_over {
            return;
        }
    }
}

fn failed(what: impl Into<String>) -> TextError {
    TextError::new(Code::Internal, what)
}

impl Worker {
    fn start(folder: &Path, digest: u64) -> Result<Worker> {
        let cannot =
            |e: io::Error| failed(format!("a process for long texts can't be started: {e}"));
        let program = program().ok_or_else(|| failed("no program for long texts is known"))?;
        let (ours, theirs) = UnixStream::pair().map_err(cannot)?;
        ours.set_read_timeout(Some(POLL)).map_err(cannot)?;
        ours.set_write_timeout(Some(START_LIMIT)).map_err(cannot)?;
        let process = Command::new(program)
            .arg(WORKER_FLAG)
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .spawn()
            .map_err(cannot)?;
        let mut worker = Worker { process, socket: ours, used: Instant::now() };
        let hello =
            Writer::default().bytes(folder.as_os_str().as_encoded_bytes()).number(digest).end();
        match worker.ask(&hello, START_LIMIT) {
            Ok((answer, _)) => answer.map(|_| worker),
            Err(Silence::Failed(e)) => Err(e),
            Err(_) => Err(failed("a process for long texts ended while it loaded the tokenizer")),
        }
    }

    /// The answer, and whether the worker takes more work.
    fn ask(
        &mut self,
        request: &[u8],
        limit: Duration,
    ) -> std::result::Result<(Result<Vec<u8>>, bool), Silence> {
        if write_frame(&mut self.socket, request).is_err() {
            return Err(Silence::Gone);
        }
        let begun = Instant::now();
        let wait = || {
            let taken = begun.elapsed();
            if taken > bounded::LIMITS_MAX * limit + KILL_GRACE {
                return Err(io::ErrorKind::TimedOut.into());
            }
            if taken > GONE_GRACE && bounded::caller_is_gone() {
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
            Ok(())
        };
        let frame = match read_frame(&mut self.socket, wait) {
            Ok(frame) => frame,
            Err(e) => return Err(self.why_silent(e)),
        };
        let mut reader = Reader::of(&frame);
        let kind = reader.number().map_err(Silence::Failed)?;
        match kind {
            DONE => Ok((Ok(frame[8..].to_vec()), true)),
            OVER_TIME => Err(Silence::Overrun(Overrun::Time)),
            _ => {
                let code = reader.number().map_err(Silence::Failed)?;
                let message = reader.text().map_err(Silence::Failed)?;
                Ok((Err(TextError::new(Code::of(code), message)), true))
            }
        }
    }

    fn why_silent(&mut self, error: io::Error) -> Silence {
        match error.kind() {
            io::ErrorKind::TimedOut => return Silence::Overrun(Overrun::Time),
            io::ErrorKind::ConnectionAborted => {
                return Silence::Failed(TextError::invalid("nobody waits for this text any more"))
            }
            _ => {}
        }
        let Ok(end) = self.process.wait() else { return Silence::Gone };
        // Without memory the Rust library aborts, and systems kill.
        const SIGABRT: i32 = 6;
        const SIGKILL: i32 = 9;
        match (end.code(), end.signal()) {
            (Some(EXIT_OVER_MEMORY), _) | (_, Some(SIGABRT | SIGKILL)) => {
                Silence::Overrun(Overrun::Memory)
            }
            (Some(0), _) => Silence::Gone,
            _ => Silence::Failed(failed(format!(
                "the process that worked on this text ended: {end}"
            ))),
        }
    }
}
