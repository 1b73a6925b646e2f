//! Running what others wrote (a chat template, a grammar) under bounds of memory and time.
//!
//! `fuel` counts a template's instructions, but one instruction may double a string or compare
//! two huge lists, so fuel alone bounds neither bytes nor seconds. Here a job runs on a thread of
//! its own, and the allocator counts that thread's live bytes. A job that is over a bound is told
//! so: its caller goes on, `is_given_up` is true, and what looks at it (templates, the loop over
//! the pieces of a text) ends there and gives its memory back.
//!
//! Other people's crates look at nothing, and Rust can neither unwind out of an allocator nor end
//! a thread from outside. So work that may go beyond its bounds in there runs in a worker process
//! (see `worker`), where going over the budget ends the process. In any other process a job that
//! nobody could stop stands still once it is `OVERSHOOT_BUDGETS` over its own.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::Thread;
use std::time::{Duration, Instant};

use crate::error::{Code, Result, TextError};

/// How far beyond its budget, in budgets, a job may get before it looks whether it is given up: what
/// joins two texts that it may have makes a third one.
const OVERSHOOT_BUDGETS: i64 = 2;
/// The exit code of a worker process whose job went over its budget (process/exit_codes.h).
pub const EXIT_OVER_MEMORY: i32 = 73;
/// Address space, not memory: deep values are dropped by recursion, one frame a level, and the
/// fuel of a render (see `template`) allows some 200,000 levels.
const STACK_BYTES: usize = 256 << 20;

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
}

/// This process is a worker: it ends with a job that goes over a bound.
static IN_WORKER: AtomicBool = AtomicBool::new(false);
/// A job of this process ran longer than its limit.
static HAS_OVERRUN: AtomicBool = AtomicBool::new(false);

thread_local! {
    static BYTES_LEFT: Cell<i64> = const { Cell::new(UNBOUNDED) };
    static BUDGET: Cell<i64> = const { Cell::new(UNBOUNDED) };
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
        BYTES_LEFT.set(after);
        if after < 0 {
            go_over_budget(after);
        }
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

extern "C" {
    /// The C library's: microseconds that this process computed for.
    fn clock() -> std::ffi::c_long;
    /// The C library's: nothing is allocated, no handler runs.
    fn _exit(code: i32) -> !;
}

/// Ends this process at once.
pub fn exit_now(code: i32) -> ! {
    // SAFETY: it takes any code and doesn't return.
    unsafe { _exit(code) }
}

#[cold]
fn go_over_budget(after: i64) {
    if IN_WORKER.load(Ordering::Relaxed) {
        exit_now(EXIT_OVER_MEMORY);
    }
    let gate = GATE.get();
    // SAFETY: a thread with a budget set its gate first and keeps it alive to its end.
    let caller = unsafe {
        let changed = (*gate).state.compare_exchange(
            RUNNING,
            OVER_MEMORY,
            Ordering::AcqRel,
            Ordering::Acquire,
        );
        changed.is_ok().then_some(&(*gate).caller)
    };
    if let Some(caller) = caller {
        caller.unpark();
    }
    if after < -OVERSHOOT_BUDGETS.saturating_mul(BUDGET.get()) {
        BYTES_LEFT.set(UNBOUNDED);
        loop {
            std::thread::park();
        }
    }
}

/// From here on this process is a worker: a job that goes over its budget ends it.
pub fn become_worker() {
    IN_WORKER.store(true, Ordering::Relaxed);
}

pub fn is_worker() -> bool {
    IN_WORKER.load(Ordering::Relaxed)
}

/// Whether a job of this process ran longer than its limit, and may still run.
pub fn has_overrun() -> bool {
    HAS_OVERRUN.load(Ordering::Acquire)
}

/// Whether this thread's job took more memory than it may: it ends wherever it is.
#[inline]
pub fn is_over_budget() -> bool {
    BYTES_LEFT.get() < 0
}

/// Whether this thread's job may take so many bytes more.
pub fn has_room(bytes: usize) -> bool {
    let left = BYTES_LEFT.get();
    left == UNBOUNDED || i64::try_from(bytes).is_ok_and(|bytes| bytes <= left)
}

/// What this thread's job holds now.
pub fn bytes_held() -> usize {
    usize::try_from(BUDGET.get() - BYTES_LEFT.get()).unwrap_or(0)
}

/// Counts this thread's live bytes no longer, also when its work ends with a panic.
struct Uncounted;

impl Drop for Uncounted {
    fn drop(&mut self) {
        BYTES_LEFT.set(UNBOUNDED);
    }
}

/// Does `work` on this thread, and tells how many bytes more (or fewer) are live behind it.
pub fn counted<T>(work: impl FnOnce() -> T) -> (T, i64) {
    let is_bounded = BYTES_LEFT.get() != UNBOUNDED;
    let _uncounted = (!is_bounded).then(|| {
        // More than there can be, on both sides.
        BYTES_LEFT.set(UNBOUNDED / 2);
        Uncounted
    });
    let before = BYTES_LEFT.get();
    let done = work();
    (done, before - BYTES_LEFT.get())
}

/// Whether who called this thread's jobs is gone (`watch_cancellation`).
pub fn caller_is_gone() -> bool {
    let flag = CANCELLATION.get();
    // SAFETY: who set it keeps it for as long.
    !flag.is_null() && unsafe { (*flag).load(Ordering::Relaxed) }
}

/// Whether the result of the job that this thread runs is of no use any more: it may end wherever
/// it is.
pub fn is_given_up() -> bool {
    let gate = GATE.get();
    if gate.is_null() {
        return false;
    }
    // SAFETY: as in `go_over_budget`.
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

/// Of a worker, whose parent has a rank's steps to run beside it: a job that got little of the
/// machine's time has up to so many times its limit.
pub const LIMITS_MAX: u32 = 3;

/// Runs `job` on its own thread with at most `budget_bytes` live and for at most `limit`. `what` it
/// is, for messages: "chat template".
///
/// After an `Overrun` the thread is still there until it looks at `is_given_up`. A panic of the job
/// is an `Internal` error.
pub fn run<T: Send + 'static>(
    what: &'static str,
    budget_bytes: usize,
    limit: Duration,
    job: impl FnOnce() -> Result<T> + Send + 'static,
) -> std::result::Result<Result<T>, Overrun> {
    let caller = std::thread::current();
    let is_cancelled = AtomicBool::new(false);
    let gate = Arc::new(Gate { state: AtomicU8::new(RUNNING), is_cancelled, caller });
    let slot: Arc<Mutex<Option<Result<T>>>> = Arc::new(Mutex::new(None));
    let (job_gate, job_slot) = (gate.clone(), slot.clone());
    let body = move || run_on_thread(what, budget_bytes, &job_gate, &job_slot, job);
    let spawned =
        std::thread::Builder::new().name("macrame-text".into()).stack_size(STACK_BYTES).spawn(body);
    if let Err(e) = spawned {
        return Ok(Err(TextError::new(Code::Unavailable, format!("no thread for a {what}: {e}"))));
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
    what: &str,
    budget_bytes: usize,
    gate: &Arc<Gate>,
    slot: &Mutex<Option<Result<T>>>,
    job: impl FnOnce() -> Result<T>,
) {
    GATE.set(Arc::as_ptr(gate));
    let budget = budget_bytes.min(UNBOUNDED as usize - 1) as i64;
    BUDGET.set(budget);
    BYTES_LEFT.set(budget);
    let result = catch_unwind(AssertUnwindSafe(job));
    BYTES_LEFT.set(UNBOUNDED);
    let result = result.unwrap_or_else(|_| {
        Err(TextError::new(Code::Internal, format!("the {what} engine failed on this input")))
    });
    *slot.lock().unwrap_or_else(|e| e.into_inner()) = Some(result);
    // Where that fails it is too late, and nobody waits any more.
    let _ = gate.state.compare_exchange(RUNNING, DONE, Ordering::AcqRel, Ordering::Acquire);
    gate.caller.unpark();
}

fn computed() -> Duration {
    // SAFETY: it has no conditions.
    Duration::from_micros(u64::try_from(unsafe { clock() }).unwrap_or(0))
}

fn wait(gate: &Gate, limit: Duration) -> u8 {
    let mut deadline = Instant::now() + limit;
    let last = deadline + (LIMITS_MAX - 1) * limit;
    let computed_before = computed();
    loop {
        let state = gate.state.load(Ordering::Acquire);
        if state != RUNNING {
            return state;
        }
        let now = Instant::now();
        let was_slow = || computed().saturating_sub(computed_before) < limit / 2;
        if now >= deadline && now < last && is_worker() && was_slow() {
            deadline = now + limit / 8;
        }
        if now >= deadline {
            match gate.state.compare_exchange(
                RUNNING,
                OVER_TIME,
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(_) => {
                    HAS_OVERRUN.store(true, Ordering::Release);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_work_leaves_live_is_counted_and_nothing_behind_it() {
        let (kept, grown) = counted(|| {
            drop(vec![1_u8; 3 << 20]);
            vec![1_u8; 1 << 20]
        });
        assert_eq!(grown, 1 << 20);
        let ((), freed) = counted(|| drop(kept));
        assert_eq!(freed, -(1 << 20));
        assert_eq!(BYTES_LEFT.get(), UNBOUNDED);
        assert!(catch_unwind(|| counted(|| panic!("of a test"))).is_err());
        assert_eq!(BYTES_LEFT.get(), UNBOUNDED);
    }
}
