//! Measurements, as they were encoded for Prometheus, as one request of OTLP, and what the collector answers.
//!
//! ```text
//! ExportMetricsServiceRequest   1 ResourceMetrics
//! ResourceMetrics               1 Resource (1 KeyValue)   2 ScopeMetrics
//! ScopeMetrics                  1 InstrumentationScope (1 name, 2 version)   2 Metric
//! Metric                        1 name   2 description   3 unit   5 Gauge | 7 Sum | 9 Histogram
//! Gauge, Sum, Histogram         1 data points   2 temporality (2: cumulative)   3 is monotonic (Sum)
//! NumberDataPoint               2 start   3 time (ns since 1970)   4 double | 6 sfixed64   7 KeyValue
//! HistogramDataPoint            2 start   3 time   4 count   5 sum   6 counts of buckets   7 their bounds   9 KeyValue
//! KeyValue                      1 key   2 AnyValue (1 text)
//! ExportMetricsServiceResponse  1 partial success (1 rejected data points, 2 reason)
//! ```
//!
//! A metric has the name that it has at `/metrics`, `_total` of counters included: collectors that write for Prometheus leave it as it is. The
//! last bucket is without a bound; counts of buckets are not cumulative, those of Prometheus are.
//!
//! Source: opentelemetry-proto 1.x, `metrics.proto`, `metrics_service.proto`; OpenMetrics 1.0.

use std::borrow::Cow;

use admin::exposition::{Family, families};

use super::protobuf::{Field, Fields, Message};

const CUMULATIVE: u64 = 2;

/// What stands around the values of each request.
#[derive(Debug)]
pub struct Frame {
    /// Who sends.
    pub attributes: Vec<(String, String)>,
    /// When counters were 0: ns since 1970.
    pub started_ns: u64,
}

type Labels<'t> = Vec<(&'t str, Cow<'t, str>)>;

/// A line of the text.
struct Sample<'t> {
    name: &'t str,
    labels: Labels<'t>,
    value: &'t str,
}

/// Splits `name{label="value",…} value` up.
fn sample(line: &str) -> Option<Sample<'_>> {
    let end = line.find(['{', ' '])?;
    let (name, mut rest) = line.split_at(end);
    let mut labels = Vec::new();
    if let Some(mut inside) = rest.strip_prefix('{') {
        while let Some((label, quoted)) = inside.split_once("=\"") {
            let (value, after) = unquoted(quoted)?;
            labels.push((label.trim_start_matches(','), value));
            inside = after;
        }
        rest = inside.strip_prefix('}')?;
    }
    Some(Sample { name, labels, value: rest.trim().split(' ').next()? })
}

/// The value of a label, and what stands behind its quote.
fn unquoted(text: &str) -> Option<(Cow<'_, str>, &str)> {
    let plain = text.find(['"', '\\'])?;
    if text.as_bytes()[plain] == b'"' {
        return Some((Cow::Borrowed(&text[..plain]), &text[plain + 1..]));
    }
    let mut value = String::new();
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return Some((Cow::Owned(value), &text[at + 1..])),
            '\\' => value.push(match letters.next()?.1 {
                'n' => '\n',
                other => other,
            }),
            other => value.push(other),
        }
    }
    None
}

fn put_labels<'t>(point: &mut Message, field: u64, labels: impl IntoIterator<Item = (&'t str, &'t str)>) {
    for (name, value) in labels {
        let (mut any, mut pair) = (Message::default(), Message::default());
        // An empty text is a value, too.
        if value.is_empty() {
            any.message(1, &Message::default())
        } else {
            any.text(1, value)
        }
        pair.text(1, name);
        pair.message(2, &any);
        point.message(field, &pair);
    }
}

fn borrowed<'l>(labels: &'l Labels<'_>) -> impl Iterator<Item = (&'l str, &'l str)> {
    labels.iter().map(|(name, value)| (*name, value.as_ref()))
}

/// Units as UCUM writes them.
fn unit(word: &str) -> &str {
    match word {
        "seconds" => "s",
        "bytes" => "By",
        "ratios" => "1",
        other => other,
    }
}

struct Times {
    started_ns: u64,
    now_ns: u64,
}

/// A value of a counter or a gauge; a gauge has no start.
fn number(sample: &Sample<'_>, is_counter: bool, times: &Times) -> Option<Message> {
    let mut point = Message::default();
    if is_counter {
        point.fixed(2, times.started_ns);
    }
    point.fixed(3, times.now_ns);
    match sample.value.parse::<i64>() {
        Ok(whole) => point.fixed(6, whole as u64),
        Err(_) => point.fixed(4, sample.value.parse::<f64>().ok()?.to_bits()),
    }
    put_labels(&mut point, 7, borrowed(&sample.labels));
    Some(point)
}

/// What the lines of one histogram say.
#[derive(Default)]
struct Buckets<'t> {
    labels: Labels<'t>,
    /// Upper bounds and, cumulative, how many lie below.
    buckets: Vec<(f64, u64)>,
    sum: f64,
}

impl Buckets<'_> {
    fn point(mut self, times: &Times) -> Message {
        self.buckets.sort_by(|(one, _), (other, _)| one.total_cmp(other));
        let mut below = 0;
        let counts: Vec<u64> =
            self.buckets.iter().map(|(_, count)| count.saturating_sub(std::mem::replace(&mut below, *count))).collect();
        let bounds: Vec<u64> =
            self.buckets.iter().map(|(bound, _)| *bound).filter(|bound| bound.is_finite()).map(f64::to_bits).collect();
        let mut point = Message::default();
        point.fixed(2, times.started_ns);
        point.fixed(3, times.now_ns);
        point.fixed(4, below);
        point.fixed(5, self.sum.to_bits());
        point.packed(6, counts.into_iter());
        point.packed(7, bounds.into_iter());
        put_labels(&mut point, 9, borrowed(&self.labels));
        point
    }
}

/// The histograms of a metric: its lines stand together by their labels.
fn histograms(family: &Family<'_>, times: &Times) -> Vec<Message> {
    let (mut points, mut current): (Vec<Message>, Option<Buckets<'_>>) = (Vec::new(), None);
    for mut sample in family.samples.iter().filter_map(|line| sample(line)) {
        let bound = sample.labels.iter().position(|(name, _)| *name == "le").map(|at| sample.labels.remove(at).1);
        if current.as_ref().is_none_or(|known| known.labels != sample.labels) {
            points.extend(current.take().map(|known| known.point(times)));
            current = Some(Buckets { labels: sample.labels, ..Buckets::default() });
        }
        let Some(known) = &mut current else { continue };
        if let Some(bound) = bound {
            known.buckets.extend(bound.parse().ok().zip(sample.value.parse().ok()));
        } else if sample.name.ends_with("_sum") {
            known.sum = sample.value.parse().unwrap_or(0.0);
        }
    }
    points.extend(current.map(|known| known.point(times)));
    points
}

fn metric(name: &str, family: &Family<'_>, times: &Times) -> Option<Message> {
    let numbers =
        |is_counter| family.samples.iter().filter_map(|line| number(&sample(line)?, is_counter, times)).collect();
    let (field, points): (u64, Vec<Message>) = match family.kind {
        "counter" => (7, numbers(true)),
        "histogram" => (9, histograms(family, times)),
        _ => (5, numbers(false)),
    };
    let mut data = Message::default();
    points.iter().for_each(|point| data.message(1, point));
    if field != 5 {
        data.number(2, CUMULATIVE);
    }
    data.number(3, u64::from(field == 7));
    let mut metric = Message::default();
    metric.text(1, &if field == 7 { format!("{name}_total") } else { name.to_owned() });
    metric.text(2, family.help);
    metric.text(3, family.unit.map_or("", unit));
    metric.message(field, &data);
    (!points.is_empty()).then_some(metric)
}

/// One request with all measurements of a text in OpenMetrics' form.
pub fn request(text: &str, frame: &Frame, now_ns: u64) -> Vec<u8> {
    let times = Times { started_ns: frame.started_ns, now_ns };
    let (mut resource, mut scope, mut of_scope) = (Message::default(), Message::default(), Message::default());
    put_labels(&mut resource, 1, frame.attributes.iter().map(|(name, value)| (name.as_str(), value.as_str())));
    scope.text(1, "mainstem");
    scope.text(2, env!("CARGO_PKG_VERSION"));
    of_scope.message(1, &scope);
    for (name, family) in families(text) {
        if let Some(metric) = metric(name, &family, &times) {
            of_scope.message(2, &metric);
        }
    }
    let (mut of_resource, mut request) = (Message::default(), Message::default());
    of_resource.message(1, &resource);
    of_resource.message(2, &of_scope);
    request.message(1, &of_resource);
    request.into_bytes()
}

/// How many values a collector did not take, and why, by its answer; `None`: it took all.
pub fn rejected(answer: &[u8]) -> Option<(u64, String)> {
    let partial = Fields(answer).find_map(|field| match field {
        (1, Field::Bytes(partial)) => Some(partial),
        _ => None,
    })?;
    let (mut count, mut reason) = (0, String::new());
    for field in Fields(partial) {
        match field {
            (1, Field::Number(number)) => count = number,
            (2, Field::Bytes(text)) => {
                reason = String::from_utf8_lossy(text).chars().filter(|letter| !letter.is_control()).take(200).collect()
            }
            _ => {}
        }
    }
    Some((count, reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_split_up() {
        let of = |line| {
            sample(line).map(|one| {
                (
                    one.name.to_owned(),
                    one.labels.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>(),
                    one.value.to_owned(),
                )
            })
        };
        assert_eq!(of("a_total 5"), Some(("a_total".to_owned(), vec![], "5".to_owned())));
        let (name, labels, value) = of(r#"b{api="x\"y\\n\n,}",le="+Inf"} 2.5"#).expect("a sample");
        assert_eq!(
            (name.as_str(), value.as_str(), labels),
            ("b", "2.5", vec!["api=x\"y\\n\n,}".to_owned(), "le=+Inf".to_owned()])
        );
        assert!(of("b{api=\"x} 1").is_none() && of("nothing").is_none());
    }

    fn inside<'b>(bytes: &'b [u8], path: &[u64]) -> Vec<&'b [u8]> {
        let Some((first, rest)) = path.split_first() else { return vec![bytes] };
        let picked = Fields(bytes).filter_map(|(number, field)| match field {
            Field::Bytes(inner) if number == *first => Some(inner),
            _ => None,
        });
        picked.flat_map(|inner| inside(inner, rest)).collect()
    }

    #[test]
    fn buckets_are_counted_one_by_one() {
        let text = "# HELP d_seconds Time.\n# TYPE d_seconds histogram\n# UNIT d_seconds seconds\nd_seconds_sum{api=\"p\"} 1.5\nd_seconds_count{api=\"p\"} 7\n\
            d_seconds_bucket{le=\"0.1\",api=\"p\"} 2\nd_seconds_bucket{le=\"0.2\",api=\"p\"} 6\nd_seconds_bucket{le=\"+Inf\",api=\"p\"} 7\n\
            # HELP n Number.\n# TYPE n counter\nn_total 3\n# EOF\n";
        let body =
            request(text, &Frame { attributes: vec![("service.name".to_owned(), "m".to_owned())], started_ns: 1 }, 2);
        let words = |bytes: &[u8]| {
            bytes.chunks_exact(8).map(|part| u64::from_le_bytes(part.try_into().expect("eight"))).collect::<Vec<_>>()
        };
        let points = [1, 2, 2, 9, 1];
        assert_eq!(words(inside(&body, &[&points[..], &[6]].concat())[0]), [2, 4, 1]);
        assert_eq!(words(inside(&body, &[&points[..], &[7]].concat())[0]), [0.1_f64.to_bits(), 0.2_f64.to_bits()]);
        assert_eq!(inside(&body, &[1, 2, 2, 1]), [&b"d_seconds"[..], b"n_total"]);
        assert_eq!(inside(&body, &[1, 1, 1, 2, 1]), [b"m"]);
        assert_eq!(inside(&body, &[1, 2, 2, 3]), [b"s"]);
        assert_eq!(inside(&body, &[1, 2, 2, 7]).len(), 1);
    }

    #[test]
    fn what_is_not_taken_is_told() {
        let (mut partial, mut answer) = (Message::default(), Message::default());
        partial.number(1, 5);
        partial.text(2, "too\nold");
        answer.message(1, &partial);
        assert_eq!(rejected(&answer.into_bytes()), Some((5, "tooold".to_owned())));
        assert_eq!(rejected(&[]), None);
    }
}
