//! Running what others wrote (a chat template, a grammar) under bounds of memory and time.
//!
//! `fuel` counts a template's instructions, but one instruction may double a string or compare
//! two huge lists, so fuel alone bounds neither bytes nor seconds. Here a job runs on a thread of
//! its own. The allocator counts that thread's live bytes; a request that would pass the budget is
//! never made: the thread tells its caller and stops for ever at that point. Rust can neither
//! unwind out of an allocator nor end a thread from outside, so such a thread is abandoned with
//! what it holds, and there may be only a few of them in a process.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::Thread;
use std::time::{Duration, Instant};

use crate::error::{Code, Result, TextError};

/// After so many abandoned jobs nothing more is run: the process ought to be started afresh.
pub const ABANDONED_JOBS_MAX: isize = 8;
/// Address space, not memory: deep values are dropped by recursion, one frame a level, and the
/// fuel of a render (see `template`) allows some 200,000 levels.
const STACK_BYTES: usize = 256 << 20;

/// A kind of jobs, for messages; each counts what it abandoned for itself.
pub struct Work {
    /// "chat template"
    pub what: &'static str,
    /// What to do when too many were abandoned.
    pub advice: &'static str,
    abandoned: AtomicIsize,
}

impl Work {
    pub const fn new(what: &'static str, advice: &'static str) -> Work {
        Work { what, advice, abandoned: AtomicIsize::new(0) }
    }
}

/// How often a caller looks whether its job's result is still wanted.
const CANCELLATION_POLL: Duration = Duration::from_millis(20);
const UNBOUNDED: i64 = i64::MAX;
const RUNNING: u8 = 0;
const DONE: u8 = 1;
const OVER_MEMORY: u8 = 2;
const OVER_TIME: u8 = 3;

/// What a job's thread and its caller share.
struct Gate {
    state: AtomicU8,
    /// Nobody wants the result any more; the caller waits for the thread all the same.
    is_cancelled: AtomicBool,
    caller: Thread,
    work: &'static Work,
}

thread_local! {
    static BYTES_LEFT: Cell<i64> = const { Cell::new(UNBOUNDED) };
    static GATE: Cell<*const Gate> = const { Cell::new(ptr::null()) };
    static CANCELLATION: Cell<*const AtomicBool> = const { Cell::new(ptr::null()) };
}

/// Jobs that this thread runs from here on are told soon after `*flag` is true that nobody wants
/// their result any more; null: none is.
///
/// # Safety
/// `flag` is null, or lives until it is replaced.
pub unsafe fn watch_cancellation(flag: *const AtomicBool) {
    CANCELLATION.set(flag);
}

/// The system's allocator, with a count of live bytes on threads that have a budget.
pub struct CountingAllocator;

impl CountingAllocator {
    #[inline]
    fn take(bytes: usize) {
        let left = BYTES_LEFT.get();
        if left == UNBOUNDED {
            return;
        }
        let after = left.saturating_sub(bytes as i64);
        if after < 0 {
            stop_for_ever();
        }
        BYTES_LEFT.set(after);
    }

    #[inline]
    fn give_back(bytes: usize) {
        let left = BYTES_LEFT.get();
        if left != UNBOUNDED {
            BYTES_LEFT.set(left.saturating_add(bytes as i64).min(UNBOUNDED - 1));
        }
    }
}

// SAFETY: every request goes to the system's allocator unchanged; counting touches only
// thread-local cells without destructors, which never allocate.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Self::take(layout.size());
        System.alloc(layout)
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        Self::take(layout.size());
        System.alloc_zeroed(layout)
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        Self::give_back(layout.size());
        System.dealloc(ptr, layout);
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // Old and new may live side by side for a moment, so the new size is asked for first.
        Self::take(new_size);
        Self::give_back(layout.size());
        System.realloc(ptr, layout, new_size)
    }
}

#[cold]
fn stop_for_ever() -> ! {
    BYTES_LEFT.set(UNBOUNDED);
    let gate = GATE.get();
    // SAFETY: a thread with a budget set its gate first and keeps it alive to its end.
    unsafe {
        if (*gate)
            .state
            .compare_exchange(RUNNING, OVER_MEMORY, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
        {
            (*gate).work.abandoned.fetch_add(1, Ordering::Relaxed);
        }
        (*gate).caller.unpark();
    }
    loop {
        std::thread::park();
    }
}

/// Whether the result of the job that this thread runs is of no use any more: it may end wherever
/// it is.
pub fn is_given_up() -> bool {
    let gate = GATE.get();
    if gate.is_null() {
        return false;
    }
    // SAFETY: as in `stop_for_ever`.
    unsafe {
        (*gate).state.load(Ordering::Relaxed) != RUNNING
            || (*gate).is_cancelled.load(Ordering::Relaxed)
    }
}

/// How a job ended that didn't end by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overrun {
    /// It asked for more memory than its budget.
    Memory,
    /// It ran longer than its limit.
    Time,
}

/// Runs `job` on its own thread with at most `budget_bytes` live and for at most `limit`.
///
/// An `Overrun` means that the thread is still there, holding what it held: don't run that job
/// again. A panic of the job is an `Internal` error.
pub fn run<T: Send + 'static>(
    work: &'static Work,
    budget_bytes: usize,
    limit: Duration,
    job: impl FnOnce() -> Result<T> + Send + 'static,
) -> std::result::Result<Result<T>, Overrun> {
    let Work { what, advice, abandoned } = work;
    if abandoned.load(Ordering::Relaxed) >= ABANDONED_JOBS_MAX {
        return Ok(Err(TextError::new(
            Code::FailedPrecondition,
            format!(
                "{ABANDONED_JOBS_MAX} {what} runs had to be abandoned in this process; {advice}"
            ),
        )));
    }
    let caller = std::thread::current();
    let is_cancelled = AtomicBool::new(false);
    let gate = Arc::new(Gate { state: AtomicU8::new(RUNNING), is_cancelled, caller, work });
    let slot: Arc<Mutex<Option<Result<T>>>> = Arc::new(Mutex::new(None));
    let (job_gate, job_slot) = (gate.clone(), slot.clone());
    let body = move || run_on_thread(budget_bytes, &job_gate, &job_slot, job);
    let spawned =
        std::thread::Builder::new().name("macrame-text".into()).stack_size(STACK_BYTES).spawn(body);
    if let Err(e) = spawned {
        return Ok(Err(TextError::exhausted(format!("no thread for a {what}: {e}"))));
    }
    match wait(&gate, limit) {
        DONE => Ok(slot.lock().unwrap_or_else(|e| e.into_inner()).take().unwrap_or_else(|| {
            Err(TextError::new(Code::Internal, format!("a {what} run left no result")))
        })),
        OVER_MEMORY => Err(Overrun::Memory),
        _ => Err(Overrun::Time),
    }
}

fn run_on_thread<T>(
    budget_bytes: usize,
    gate: &Arc<Gate>,
    slot: &Mutex<Option<Result<T>>>,
    job: impl FnOnce() -> Result<T>,
) {
    GATE.set(Arc::as_ptr(gate));
    BYTES_LEFT.set(budget_bytes.min(UNBOUNDED as usize - 1) as i64);
    let result = catch_unwind(AssertUnwindSafe(job));
    BYTES_LEFT.set(UNBOUNDED);
    let result = result.unwrap_or_else(|_| {
        let what = gate.work.what;
        Err(TextError::new(Code::Internal, format!("the {what} engine failed on this input")))
    });
    *slot.lock().unwrap_or_else(|e| e.into_inner()) = Some(result);
    if gate.state.compare_exchange(RUNNING, DONE, Ordering::AcqRel, Ordering::Acquire).is_err() {
        // Too late, but it came back after all.
        gate.work.abandoned.fetch_sub(1, Ordering::Relaxed);
    }
    gate.caller.unpark();
}

fn wait(gate: &Gate, limit: Duration) -> u8 {
    let deadline = Instant::now() + limit;
    loop {
        let state = gate.state.load(Ordering::Acquire);
        if state != RUNNING {
            return state;
        }
        let now = Instant::now();
        if now >= deadline {
            match gate.state.compare_exchange(
                RUNNING,
                OVER_TIME,
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(_) => {
                    gate.work.abandoned.fetch_add(1, Ordering::Relaxed);
                    return OVER_TIME;
                }
                Err(state) => return state,
            }
        }
        let flag = CANCELLATION.get();
        if flag.is_null() || gate.is_cancelled.load(Ordering::Relaxed) {
            std::thread::park_timeout(deadline - now);
            continue;
        }
        // SAFETY: who set it keeps it for as long.
        if unsafe { (*flag).load(Ordering::Relaxed) } {
            gate.is_cancelled.store(true, Ordering::Relaxed);
        }
        std::thread::park_timeout(CANCELLATION_POLL.min(deadline - now));
    }
}
