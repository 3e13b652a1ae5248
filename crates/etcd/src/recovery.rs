//! Of two etcds that have come from one: which of them the cluster goes on with. The one that was recovered more often.

use cluster::key::Key;
use cluster::record::Cluster;

use crate::BadAnswer;
use crate::wire::etcdserverpb::{RangeRequest, RangeResponse};

/// Asks for the record that says how often the cluster was recovered.
#[must_use]
pub fn ask() -> RangeRequest {
    RangeRequest { key: Key::Cluster.bytes(), ..RangeRequest::default() }
}

/// How often it was.
///
/// # Errors
/// [`BadAnswer`] without a record that can be read.
pub fn recoveries(answer: &RangeResponse) -> Result<u64, BadAnswer> {
    let record = answer.kvs.first().ok_or(BadAnswer::Missing("cluster"))?;
    Ok(Cluster::decode(&record.value).map_err(|_| BadAnswer::Cluster)?.recoveries)
}

#[cfg(test)]
mod tests {
    use sim::cast;

    use super::*;
    use crate::wire::mvccpb::KeyValue;

    #[test]
    fn the_number_of_recoveries_is_read_from_the_clusters_record_alone() {
        assert_eq!(ask().key, b"/cairn/v1/cluster");
        let answer = |values: &[Vec<u8>]| RangeResponse {
            kvs: values.iter().map(|value| KeyValue { value: value.clone(), ..KeyValue::default() }).collect(),
            ..RangeResponse::default()
        };
        let cluster = Cluster { recoveries: 3, ..cast::creation(model::VPN_PREFIX).cluster };
        assert_eq!(recoveries(&answer(&[cluster.encode()])), Ok(3));
        assert_eq!(recoveries(&answer(&[])), Err(BadAnswer::Missing("cluster")));
        assert_eq!(recoveries(&answer(&[vec![0xff]])), Err(BadAnswer::Cluster));
    }
}
