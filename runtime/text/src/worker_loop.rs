//! A text worker's own side (see `worker`): what it does for its parent until that is gone.

use std::cell::OnceCell;
use std::ffi::OsStr;
use std::os::fd::FromRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::parent_id;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::bounded;
use crate::chat::{encode_chat, RawChat};
use crate::error::{Code, Result, TextError};
use crate::grammar::{Engine, Kind};
use crate::markers::Markers;
use crate::prompt_limit::{encode_bounded, encode_prompt_bounded, load_bounded, PromptLimit};
use crate::template::ChatTemplate;
use crate::tokenizer::Tokenizer;
use crate::wire::{read_frame, write_frame, Reader, Writer};
use crate::worker::{
    digest_of, COMPILE, DONE, ENCODE, ENCODE_CHAT, ENCODE_PROMPT, OVER_TIME, REFUSED,
};

/// How often a worker looks whether its parent is there.
const PARENT_LOOK: Duration = Duration::from_millis(500);

struct Model {
    folder: PathBuf,
    tokenizer: Arc<Tokenizer>,
    template: OnceCell<Result<ChatTemplate>>,
    engine: OnceCell<Result<Engine>>,
}

/// Serves the parent that is behind descriptor 0, until it closes.
pub fn serve() {
    bounded::become_worker();
    let parent = parent_id();
    std::thread::spawn(move || loop {
        std::thread::sleep(PARENT_LOOK);
        if parent_id() != parent {
            bounded::exit_now(0);
        }
    });
    // SAFETY: the parent gave a socket as descriptor 0, and nothing else here takes it.
    let mut socket = unsafe { UnixStream::from_raw_fd(0) };
    let mut model = None;
    while let Ok(frame) = read_frame(&mut socket, || Ok(())) {
        let answer = match &model {
            None => load(&frame).map(|loaded| {
                model = Some(loaded);
                Writer::default()
            }),
            Some(model) => work(model, &frame),
        };
        let head = Writer::default();
        let answer = match answer {
            _ if bounded::has_overrun() => head.number(OVER_TIME).end(),
            Ok(done) => [head.number(DONE).end(), done.end()].concat(),
            Err(e) => head.number(REFUSED).number(e.code as u64).bytes(e.message.as_bytes()).end(),
        };
        // A job that ran too long may still run: it ends with the process.
        if write_frame(&mut socket, &answer).is_err() || bounded::has_overrun() {
            return;
        }
    }
}

fn load(frame: &[u8]) -> Result<Model> {
    let mut reader = Reader::of(frame);
    let folder = PathBuf::from(OsStr::from_bytes(reader.text()?.as_bytes()));
    let digest = reader.number()?;
    let tokenizer = Arc::new(load_bounded(&folder)?);
    if digest_of(&folder) != digest {
        return Err(TextError::new(
            Code::FailedPrecondition,
            "the model's tokenizer or chat template on disk is another one than was loaded; \
             unload the model and load it again",
        ));
    }
    Ok(Model { folder, tokenizer, template: OnceCell::new(), engine: OnceCell::new() })
}

fn work(model: &Model, frame: &[u8]) -> Result<Writer> {
    let mut reader = Reader::of(frame);
    match reader.number()? {
        ENCODE => {
            let (adds, is_special) = (reader.flag()?, reader.flag()?);
            let limit = PromptLimit::of_tokens(reader.number()? as usize);
            let ids = encode_bounded(&model.tokenizer, reader.text()?, adds, is_special, limit)?;
            Ok(Writer::default().ids(&ids))
        }
        ENCODE_PROMPT => {
            let limit = PromptLimit::of_tokens(reader.number()? as usize);
            let (is_marked, markers) = (reader.flag()?, reader.text()?);
            let markers = is_marked.then(|| Markers::of_text(markers));
            let prompt = reader.text()?.to_string();
            let ids = encode_prompt_bounded(&model.tokenizer, prompt, markers, limit)?;
            Ok(Writer::default().ids(&ids))
        }
        ENCODE_CHAT => {
            let raw = RawChat::from_wire(&mut reader)?;
            let loaded = model.template.get_or_init(|| ChatTemplate::load(&model.folder));
            let template = loaded.as_ref().map_err(Clone::clone)?;
            Ok(Writer::default().ids(&encode_chat(&model.tokenizer, template, &raw)?))
        }
        COMPILE => {
            let kind = Kind::of(reader.number()? as u32)?;
            let loaded = model.engine.get_or_init(|| Engine::new(&model.tokenizer));
            loaded.as_ref().map_err(Clone::clone)?.compile(kind, reader.text()?)?;
            Ok(Writer::default())
        }
        other => Err(TextError::new(Code::Internal, format!("no work has number {other}"))),
    }
}
