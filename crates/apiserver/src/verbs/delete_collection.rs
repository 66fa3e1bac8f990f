//! DELETE of a collection: everything the list parameters select, one by one (AS-152).

use super::{delete, list};
use crate::{
    answer::{Answer, Content},
    options::ListOptions,
    route::Target,
    server::{ApiServer, Call},
    status::Status,
    storage,
};

pub(super) async fn delete_collection(server: &ApiServer, call: &mut Call, target: &Target) -> Result<Answer, Status> {
    let list_options = ListOptions::parse(&call.query, false)?;
    let options = delete::options(call).await?;
    let found = list::select(server, target, &list_options).await?;
    if let Some(warning) = delete::default_propagation_warning(target, &options) {
        call.warnings.push(warning.to_owned());
    }
    for item in &found.items {
        let object = storage::parse(item)?;
        let one = Target {
            namespace: object["metadata"]["namespace"].as_str().map(str::to_owned),
            name: object["metadata"]["name"].as_str().map(str::to_owned),
            ..target.clone()
        };
        match delete::remove(server, &one, &options).await {
            Ok(_) => {}
            // Somebody else was faster.
            Err(status) if status.code == 404 => {}
            Err(status) => return Err(status),
        }
    }
    Ok(Answer { code: 200, content: Content::List(found) })
}
