//! Listening, connections, and shutdown.

use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{Semaphore, watch};

use crate::error::{Error, Result};
use crate::model::Model;
use crate::router::router;
use crate::server::Server;
use crate::settings::Settings;
use crate::write_timeout::WriteTimeout;

/// Maximum bytes of a request's header, and of a response that hyper holds.
const BUFFER_BYTES: usize = 64 << 10;
/// Bytes of the operating system's send buffer of each connection. A client that does not read holds at most this and
/// [`BUFFER_BYTES`].
const SEND_BYTES: u32 = 64 << 10;
/// Maximum number of connections that wait to be accepted.
const BACKLOG: u32 = 1024;
/// Maximum number of texts that are encoded at once.
const ENCODERS: usize = 4;
/// Pause after a failed `accept`, which usually means that the process has too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Time in which connections end after the grace time.
const CONNECTIONS_END: Duration = Duration::from_secs(1);
/// Time in which the models' threads end their present step after a second signal.
const FORCED_END: Duration = Duration::from_secs(5);
/// Pause between two looks at the threads.
const THREAD_PAUSE: Duration = Duration::from_millis(5);

/// Serves models until the process receives SIGINT or SIGTERM. Then stops accepting requests, finishes the running ones
/// for at most the grace time, and returns. A second signal ends the process. Calls `ready` with the address once the server
/// accepts connections.
///
/// # Errors
/// If the server cannot start.
pub fn serve(models: Vec<Model>, settings: Settings, ready: &mut dyn FnMut(SocketAddr)) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(ENCODERS)
        .thread_name("encoder")
        .build()?;
    let (threads, is_forced) = runtime.block_on(async {
        let listener = listen(&settings)?;
        let mut signals = Signals::new()?;
        let (server, threads) = Server::start(models, settings)?;
        let server = Arc::new(server);
        ready(listener.local_addr()?);
        let is_forced = run(&server, listener, &mut signals).await;
        for model in &server.models {
            model.shared.stop();
        }
        Ok::<_, Error>((threads, is_forced))
    })?;
    // Ends all connections, which hold the senders of the models' threads.
    let patience = if is_forced { Duration::ZERO } else { CONNECTIONS_END };
    runtime.shutdown_timeout(patience);
    if is_forced {
        wait_for(&threads, FORCED_END);
        return Err(Error::Interrupted);
    }
    for thread in threads {
        // A thread that panicked has reported it.
        let _ = JoinHandle::join(thread);
    }
    Ok(())
}

/// Waits until all threads have ended, but at most this time. A driver may crash if the process ends while a thread uses the
/// device.
fn wait_for(threads: &[JoinHandle<()>], limit: Duration) {
    let start = Instant::now();
    while threads.iter().any(|thread| !thread.is_finished()) && start.elapsed() < limit {
        std::thread::sleep(THREAD_PAUSE);
    }
}

/// Binds the address of the settings.
fn listen(settings: &Settings) -> Result<TcpListener> {
    let address = format!("{}:{}", settings.host, settings.port);
    let failed = |reason: String| Error::Listen { address: address.clone(), reason };
    let resolved = (settings.host.as_str(), settings.port).to_socket_addrs();
    let mut last = failed("the name has no address".to_owned());
    for address in resolved.map_err(|e| failed(e.to_string()))? {
        match bind(address) {
            Ok(listener) => return Ok(listener),
            Err(error) => last = failed(error.to_string()),
        }
    }
    Err(last)
}

fn bind(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    #[cfg(unix)]
    socket.set_reuseaddr(true)?;
    // Accepted connections inherit it.
    socket.set_send_buffer_size(SEND_BYTES)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Accepts connections until the first signal. Then waits until all requests are finished, the grace time is over, or a second
/// signal arrives. Returns true after a second signal.
async fn run(server: &Arc<Server>, listener: TcpListener, signals: &mut Signals) -> bool {
    let (closing, _) = watch::channel(false);
    let limit = u32::try_from(server.settings.connections.max(1)).unwrap_or(u32::MAX);
    let places = Arc::new(Semaphore::new(limit as usize));
    loop {
        let place = tokio::select! {
            place = places.clone().acquire_owned() => place,
            () = signals.wait() => break,
        };
        // The semaphore is never closed.
        let Ok(place) = place else { break };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = signals.wait() => break,
        };
        let Ok((stream, _)) = accepted else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let (server, closing) = (server.clone(), closing.subscribe());
        tokio::spawn(async move {
            connection(server, stream, closing).await;
            drop(place);
        });
    }
    // Further connections are refused.
    drop(listener);
    closing.send_replace(true);
    tokio::select! {
        // All places are free when all connections are closed.
        _ = places.acquire_many(limit) => false,
        () = tokio::time::sleep(server.settings.grace) => false,
        () = signals.wait() => true,
    }
}

/// Serves a connection until the client closes it, or until its present request is finished and the server ends.
async fn connection(server: Arc<Server>, stream: TcpStream, mut closing: watch::Receiver<bool>) {
    let timeout = server.settings.client_timeout;
    // Small events must not wait for more data. Without the option they arrive late, but arrive.
    let _ = stream.set_nodelay(true);
    let io = TokioIo::new(WriteTimeout::new(stream, timeout));
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(timeout).max_buf_size(BUFFER_BYTES);
    let service = TowerToHyperService::new(router(server));
    let connection = builder.serve_connection(io, service);
    tokio::pin!(connection);
    // An error means that the client broke the connection or the protocol, and concerns no one else.
    tokio::select! {
        _ = connection.as_mut() => return,
        _ = closing.wait_for(|closing| *closing) => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = connection.await;
}

/// Signals that end the server.
struct Signals {
    #[cfg(unix)]
    interrupt: tokio::signal::unix::Signal,
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        #[cfg(unix)]
        {
            use tokio::signal::unix::{SignalKind, signal};
            Ok(Self {
                interrupt: signal(SignalKind::interrupt())?,
                terminate: signal(SignalKind::terminate())?,
            })
        }
        #[cfg(not(unix))]
        Ok(Self {})
    }

    /// Waits for the next signal.
    async fn wait(&mut self) {
        #[cfg(unix)]
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
        #[cfg(not(unix))]
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
