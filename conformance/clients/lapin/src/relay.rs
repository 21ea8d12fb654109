//! A relay between client and broker that cuts its connections when asked to.

use anyhow::{Context, Result};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::broadcast;

/// Listens on a loopback port until it is dropped.
pub struct Relay {
    /// The URL of the broker by way of the relay.
    pub url: String,
    scissors: broadcast::Sender<()>,
}

impl Relay {
    /// For the broker of a URL `amqp://USER:PASSWORD@HOST:PORT/VHOST`.
    pub async fn start(url: &str) -> Result<Self> {
        let address = url.split(['@', '/']).nth(3).context("a URL without user or address")?.to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let own = listener.local_addr()?.to_string();
        let (scissors, _) = broadcast::channel(1);
        let cuts = scissors.clone();
        let url = url.replace(&address, &own);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(carry(client, address.clone(), cuts.subscribe()));
            }
        });
        Ok(Self { url, scissors })
    }

    /// Ends all connections that there are.
    pub fn cut(&self) {
        // Without a connection there is nothing to cut.
        let _ = self.scissors.send(());
    }
}

async fn carry(mut client: TcpStream, address: String, mut cut: broadcast::Receiver<()>) {
    let Ok(mut broker) = TcpStream::connect(address).await else { return };
    tokio::select! {
        _ = tokio::io::copy_bidirectional(&mut client, &mut broker) => {}
        _ = cut.recv() => {}
    }
}
