//! DNS-SD over multicast DNS: the protocol is the library's, which probes, renames on conflicts and says goodbye.

use std::time::Duration;

use mdns_sd::{DaemonEvent, IfKind, IfPredicate, ServiceDaemon, ServiceInfo};

use crate::Service;
use crate::interfaces::is_meant;

/// How often the library looks for new addresses (`discovery.idle`).
const LOOK_SECS: u32 = 60;
/// A goodbye is sent at once; a library that does not come to it is left.
const GOODBYE_WAIT_MAX: Duration = Duration::from_secs(2);

pub(crate) struct Mdns {
    daemon: ServiceDaemon,
    host: String,
    /// With the full name that each has.
    registered: Vec<(Service, String)>,
}

impl Mdns {
    pub(crate) fn start(name: &str, interfaces: &[String]) -> Result<Mdns, String> {
        let told = |error: mdns_sd::Error| error.to_string();
        let daemon = ServiceDaemon::new().map_err(told)?;
        let named = interfaces.to_vec();
        let meant = IfPredicate::new(move |interface| is_meant(&interface.name, interface.ip(), &named));
        daemon.disable_interface(IfKind::All).map_err(told)?;
        daemon.enable_interface(IfKind::Predicate(meant)).map_err(told)?;
        daemon.set_ip_check_interval(LOOK_SECS).map_err(told)?;
        let events = daemon.monitor().map_err(told)?;
        // Ends with the daemon, whose side of the channel is dropped then.
        tokio::spawn(async move {
            while let Ok(event) = events.recv_async().await {
                match event {
                    DaemonEvent::NameChange(change) => tracing::info!(
                        "another machine has the name {}: this one is announced as {}",
                        change.original,
                        change.new_name
                    ),
                    DaemonEvent::Error(error) => tracing::debug!("multicast DNS: {error}"),
                    _ => {}
                }
            }
        });
        Ok(Mdns { daemon, host: format!("{name}.local."), registered: Vec::new() })
    }

    /// Registers these services and no others; the answer names those that cannot be.
    pub(crate) async fn set(&mut self, services: &[Service]) -> Vec<String> {
        let (stay, gone): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.registered).into_iter().partition(|(service, _)| services.contains(service));
        self.registered = stay;
        self.take_back(&gone).await;
        let mut faults = Vec::new();
        for service in services {
            if self.registered.iter().any(|(known, _)| known == service) {
                continue;
            }
            match self.register(service) {
                Ok(full) => self.registered.push((service.clone(), full)),
                Err(error) => faults.push(format!("'{}' is not announced as {}: {error}", service.name, service.kind)),
            }
        }
        faults
    }

    fn register(&self, service: &Service) -> Result<String, mdns_sd::Error> {
        let kind = format!("{}.local.", service.kind);
        let info = ServiceInfo::new(&kind, &service.name, &self.host, "", service.port, &service.text[..])?;
        let info = info.enable_addr_auto();
        let full = info.get_fullname().to_owned();
        self.daemon.register(info)?;
        Ok(full)
    }

    async fn take_back(&self, services: &[(Service, String)]) {
        for (_, full) in services {
            if let Ok(done) = self.daemon.unregister(full) {
                let _ = tokio::time::timeout(GOODBYE_WAIT_MAX, done.recv_async()).await;
            }
        }
    }

    pub(crate) async fn stop(self) {
        self.take_back(&self.registered).await;
        if let Ok(done) = self.daemon.shutdown() {
            let _ = tokio::time::timeout(GOODBYE_WAIT_MAX, done.recv_async()).await;
        }
    }
}
