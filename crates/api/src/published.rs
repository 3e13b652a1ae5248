//! Requests of owners about rules that publish ports: one is made, one is removed, all are listed.

use std::net::Ipv4Addr;

use cluster::record::{BadPublish, PortUsers, PublishRecord, PublishTerms};
use model::{Ipv4Prefix, MachineId, PublishId, UplinkPort};

use crate::field_error::{fixed, present};
use crate::{FieldError, ListPage, Problem, UnixMillis, wire};

impl From<PublishTerms> for wire::PublishRequest {
    fn from(terms: PublishTerms) -> Self {
        Self {
            ports: terms.ports().iter().map(ToString::to_string).collect(),
            machine_ids: terms.users().machines().iter().map(|machine| machine.0.to_vec()).collect(),
            sources: terms.sources().iter().map(ToString::to_string).collect(),
            namespace: terms.users().namespace().map(ToString::to_string),
            address: terms.address().map(u32::from),
        }
    }
}

impl TryFrom<wire::PublishRequest> for PublishTerms {
    type Error = FieldError;

    fn try_from(request: wire::PublishRequest) -> Result<Self, FieldError> {
        let unusable = |field| move |()| FieldError::new(field, Problem::Unusable);
        let ports = request.ports.iter().map(|text| text.parse::<UplinkPort>().map_err(|_| ()));
        let ports = ports.collect::<Result<_, _>>().map_err(unusable("ports"))?;
        let machines = request.machine_ids.iter().map(|id| fixed("machine_ids", id).map(MachineId));
        let sources = request.sources.iter().map(|text| text.parse::<Ipv4Prefix>().map_err(|_| ()));
        let sources = sources.collect::<Result<_, _>>().map_err(unusable("sources"))?;
        let namespace = request.namespace.map(|name| name.parse().map_err(|_| unusable("namespace")(())));
        let users = PortUsers::of(namespace.transpose()?, machines.collect::<Result<_, _>>()?);
        let address = request.address.map(Ipv4Addr::from);
        let terms = Self::new(ports, users, sources).and_then(|terms| terms.at(address));
        terms.map_err(|why| {
            let field = match why {
                BadPublish::Ports | BadPublish::Reserved(_) => "ports",
                BadPublish::Machines => "machine_ids",
                BadPublish::Sources => "sources",
                BadPublish::Address(_) | BadPublish::AddressOfHosts => "address",
                BadPublish::Field(field) => field,
            };
            FieldError::new(field, Problem::Range)
        })
    }
}

impl From<PublishId> for wire::UnpublishRequest {
    fn from(id: PublishId) -> Self {
        Self { number: id.0 }
    }
}

impl From<wire::UnpublishRequest> for PublishId {
    fn from(request: wire::UnpublishRequest) -> Self {
        Self(request.number)
    }
}

/// Rule that publishes ports, as owners see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedRule {
    /// Number and terms.
    pub record: PublishRecord,
    /// Machine that holds the rule's floating address, or is to.
    pub holder: Option<MachineId>,
}

impl From<ListPage<ListedRule>> for wire::ListPublishedResponse {
    fn from(listed: ListPage<ListedRule>) -> Self {
        let rule = |ListedRule { record, holder }: ListedRule| wire::PublishedRule {
            number: record.id.0,
            terms: Some(record.terms.into()),
            holder_id: holder.map(|machine| machine.0.to_vec()),
        };
        Self { old_since_unix_ms: listed.old_since.map(|at| at.0), rules: listed.rows.into_iter().map(rule).collect() }
    }
}

impl TryFrom<wire::ListPublishedResponse> for ListPage<ListedRule> {
    type Error = FieldError;

    fn try_from(listed: wire::ListPublishedResponse) -> Result<Self, FieldError> {
        let rule = |rule: wire::PublishedRule| {
            let terms = present("terms", rule.terms)?.try_into()?;
            let holder = rule.holder_id.map(|id| fixed("holder_id", &id).map(MachineId)).transpose()?;
            Ok(ListedRule { record: PublishRecord { id: PublishId(rule.number), terms }, holder })
        };
        let rows = listed.rules.into_iter().map(rule).collect::<Result<_, FieldError>>()?;
        Ok(Self { old_since: listed.old_since_unix_ms.map(UnixMillis), rows })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from_two_prefixes() -> PublishTerms {
        let ports = UplinkPort::read_all("80,443/tcp,53/udp").expect("ports").into_iter().collect();
        let sources = [([10, 0, 0, 0], 8), ([192, 0, 2, 1], 32)];
        let sources = sources.map(|(address, bits)| Ipv4Prefix::new(address.into(), bits).expect("a prefix"));
        let users = PortUsers::Hosts([sim::cast::id(1), sim::cast::id(2)].into());
        PublishTerms::new(ports, users, sources.into()).expect("a rule")
    }

    fn of_services(machine: Option<u16>) -> PublishTerms {
        let web = "web".parse().expect("a namespace");
        let users = PortUsers::Services(web, machine.map(sim::cast::id).into_iter().collect());
        PublishTerms::new(["80/tcp".parse().expect("a port")].into(), users, [].into()).expect("a rule")
    }

    /// Proves: A7
    #[test]
    fn rules_that_publish_cross_the_wire_as_they_are() {
        let floating = of_services(None).at(Some([192, 0, 2, 50].into())).expect("a machine may have it");
        for terms in
            [from_two_prefixes(), sim::cast::published(80, 1), of_services(None), of_services(Some(1)), floating]
        {
            assert_eq!(wire::PublishRequest::from(terms.clone()).try_into(), Ok(terms.clone()));
            for old_since in [None, Some(UnixMillis(7))] {
                let holder = old_since.map(|_| sim::cast::id(1));
                let record = PublishRecord { id: PublishId(9), terms: terms.clone() };
                let listed = ListPage { old_since, rows: vec![ListedRule { record, holder }] };
                assert_eq!(wire::ListPublishedResponse::from(listed.clone()).try_into(), Ok(listed));
            }
        }
        assert_eq!(PublishId::from(wire::UnpublishRequest::from(PublishId(9))), PublishId(9));
    }

    /// Proves: A7
    #[test]
    fn a_rule_that_cannot_be_is_refused_by_field() {
        let refused = |edit: fn(&mut wire::PublishRequest)| {
            let mut request = wire::PublishRequest::from(from_two_prefixes());
            edit(&mut request);
            PublishTerms::try_from(request).expect_err("refused").field
        };
        for (edit, field) in [
            ((|it| it.machine_ids.clear()) as fn(&mut wire::PublishRequest), "machine_ids"),
            (|it| it.machine_ids = vec![vec![1; 15]], "machine_ids"),
            (|it| it.namespace = Some("Web".to_owned()), "namespace"),
            (|it| it.ports.clear(), "ports"),
            (|it| it.ports.push("80-90/tcp".to_owned()), "ports"),
            (|it| it.ports.push("80/sctp".to_owned()), "ports"),
            (|it| it.ports.push("7836/tcp".to_owned()), "ports"),
            (|it| it.ports.push("7838/udp".to_owned()), "ports"),
            (|it| it.sources.push("fd00::/8".to_owned()), "sources"),
            (|it| it.sources.push("10.0.0.1/8".to_owned()), "sources"),
            (|it| it.address = Some(0xc000_0232), "address"),
            (|it| (it.namespace, it.address) = (Some("web".to_owned()), Some(0x7f00_0001)), "address"),
        ] {
            assert_eq!(refused(edit), field);
        }
        let without = wire::PublishedRule { number: 7, terms: None, holder_id: None };
        let listed = wire::ListPublishedResponse { old_since_unix_ms: None, rules: vec![without] };
        assert_eq!(ListPage::<ListedRule>::try_from(listed).expect_err("nothing").field, "terms");
    }
}
