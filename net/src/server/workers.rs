//! Threads for the work of a server.

use std::sync::{Mutex, PoisonError};

use tokio::runtime::{Builder, Handle, Runtime};

use super::run::ServeError;

/// A runtime for the work of a server, so that the one that moves its bytes stays free.
#[derive(Debug)]
pub struct Workers {
    runtime: Mutex<Option<Runtime>>,
    handle: Handle,
}

impl Workers {
    /// Starts `threads` threads of this name.
    ///
    /// # Errors
    /// [`ServeError::Threads`] when the operating system refuses them.
    pub fn start(name: &str, threads: usize) -> Result<Self, ServeError> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(threads)
            .thread_name(name)
            .enable_all()
            .build()
            .map_err(ServeError::Threads)?;
        Ok(Self {
            handle: runtime.handle().clone(),
            runtime: Mutex::new(Some(runtime)),
        })
    }

    /// The place to spawn work on.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Gives up all work, begun or not, at its next wait.
    pub fn stop(&self) {
        let mut runtime = self.runtime.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(runtime) = runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        // A runtime must not be dropped, which waits for it, where other tasks run.
        self.stop();
    }
}
