//! Health checks: 200 with `"status": "ok"`, or 503 with a reason.

use axum::http::{Method, StatusCode};
use broker::JournalStatus;
use serde_json::{Value, json};

use super::Listening;
use super::answer::{Answer, Outcome};
use super::call::Call;
use super::nodes::is_disk_full;
use super::overview::listeners;
use super::route::{Access, Route, route};

pub(crate) const ROUTES: &[Route] = &[
    route(Method::GET, "/aliveness-test/{vhost}", Access::Vhost, alive),
    route(Method::GET, "/health/checks/alarms", Access::Management, alarms),
    route(Method::GET, "/health/checks/local-alarms", Access::Management, alarms),
    route(Method::GET, "/health/checks/virtual-hosts", Access::Management, alive),
    route(Method::GET, "/health/checks/node-is-quorum-critical", Access::Management, quorum),
    route(Method::GET, "/health/checks/certificate-expiration/{within}/{unit}", Access::Management, certificates),
    route(Method::GET, "/health/checks/port-listener/{port}", Access::Management, port),
    route(Method::GET, "/health/checks/protocol-listener/{protocol}", Access::Management, protocol),
    route(Method::GET, "/health/checks/ready-to-serve-clients", Access::Management, ready),
    route(Method::GET, "/health/checks/is-in-service", Access::Management, ready),
    route(Method::GET, "/health/checks/below-node-connection-limit", Access::Management, below_limit),
    route(Method::GET, "/health/checks/metadata-store/initialized", Access::Management, ready),
    route(Method::GET, "/health/checks/metadata-store/initialized/with-data", Access::Management, ready),
    route(Method::GET, "/health/checks/quorum-queues-without-elected-leaders/all-vhosts", Access::Management, ready),
    route(Method::GET, "/health/checks/quorum-queues-without-elected-leaders/vhost/{vhost}", Access::Vhost, ready),
    route(
        Method::GET,
        "/health/checks/quorum-queues-without-elected-leaders/all-vhosts/pattern/{pattern}",
        Access::Management,
        ready,
    ),
    route(
        Method::GET,
        "/health/checks/quorum-queues-without-elected-leaders/vhost/{vhost}/pattern/{pattern}",
        Access::Vhost,
        ready,
    ),
];

fn ok() -> Outcome {
    Ok(Answer::of(json!({"status": "ok"})))
}

fn failed(mut found: Value, reason: &str) -> Outcome {
    found["status"] = "failed".into();
    found["reason"] = reason.into();
    Err(Answer::with_status(StatusCode::SERVICE_UNAVAILABLE, found))
}

fn stopped(call: &Call<'_>) -> Option<String> {
    call.broker().journals().iter().find_map(|journal| match journal.status() {
        JournalStatus::Stopped { reason } | JournalStatus::Hindered { reason } => Some(reason),
        JournalStatus::Running | JournalStatus::DiskFull => None,
    })
}

fn alive(call: &Call<'_>) -> Outcome {
    match stopped(call) {
        None => ok(),
        Some(reason) => failed(json!({}), &reason),
    }
}

fn ready(call: &Call<'_>) -> Outcome {
    alive(call)
}

fn alarms(call: &Call<'_>) -> Outcome {
    if is_disk_full(call.management) {
        let alarm = json!({"node": call.management.node, "resource": "disk"});
        return failed(json!({"alarms": [alarm]}), "There are alarms in effect in the cluster");
    }
    alive(call)
}

fn quorum(_: &Call<'_>) -> Outcome {
    Ok(Answer::of(json!({"status": "ok", "reason": "single node cluster"})))
}

/// Certificates are those that listeners with TLS show; when they expire is told in seconds since 1970. A month has a twelfth of 365 days.
fn certificates(call: &Call<'_>) -> Outcome {
    const DAY_S: i64 = 86_400;
    let unit_s = match call.path("unit") {
        "days" => DAY_S,
        "weeks" => 7 * DAY_S,
        "months" => 365 * DAY_S / 12,
        "years" => 365 * DAY_S,
        _ => return Err(Answer::bad_request("Time unit not recognised. Supported units: days, weeks, months, years.")),
    };
    let Ok(within) = call.path("within").parse::<u32>() else {
        return Err(Answer::bad_request("Invalid expiration period"));
    };
    let Some(until) = call.management.vitals.certificates_until() else { return ok() };
    let now = call.broker().now_ms() / 1000;
    if until > now.saturating_add(i64::from(within) * unit_s) {
        return ok();
    }
    let one = |listener: &Listening| {
        let Listening { protocol, address, .. } = listener;
        json!({"node": call.management.node, "protocol": protocol, "interface": address.ip().to_string(), "port": address.port(), "certfile_expires_on": until})
    };
    let expired: Vec<Value> = call.management.facts.listeners.iter().filter(|listener| listener.tls).map(one).collect();
    failed(json!({"expired": expired}), "Certificates expiring")
}

fn port(call: &Call<'_>) -> Outcome {
    let Ok(wanted) = call.path("port").parse::<u16>() else { return Err(Answer::bad_request("Invalid port")) };
    let ports: Vec<Value> = listeners(call).into_iter().map(|one| one["port"].clone()).collect();
    if ports.contains(&wanted.into()) {
        return Ok(Answer::of(json!({"status": "ok", "port": wanted})));
    }
    failed(json!({"missing": wanted, "ports": ports}), "No active listener")
}

fn protocol(call: &Call<'_>) -> Outcome {
    let mut protocols: Vec<String> =
        listeners(call).iter().filter_map(|one| Some(one["protocol"].as_str()?.to_owned())).collect();
    protocols.sort();
    protocols.dedup();
    // As RabbitMQ does, several are one wish, with commas between, and AMQP may be called by its version.
    let is_served = |wanted: &str| {
        let wanted =
            if matches!(wanted, "amqp091" | "amqp0.9.1" | "amqp0-9-1" | "amqp0_9_1") { "amqp" } else { wanted };
        protocols.iter().any(|served| served == wanted)
    };
    let missing: Vec<&str> =
        call.path("protocol").split(',').map(str::trim).filter(|wanted| !is_served(wanted)).collect();
    if missing.is_empty() {
        return Ok(Answer::of(json!({"status": "ok", "protocols": protocols})));
    }
    failed(json!({"missing": missing, "protocols": protocols}), "No active listener")
}

fn below_limit(call: &Call<'_>) -> Outcome {
    let (limit, count) = (call.broker().live_settings().int("max.connections"), call.broker().connections().count());
    if (count as i64) < limit {
        ok()
    } else {
        failed(json!({"limit": limit, "connections": count}), "node connection limit is reached")
    }
}
