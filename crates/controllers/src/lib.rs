//! Controllers: the shells that carry out the plans of `batch-plan` through the Kubernetes API.
