// Package metrics describes the metrics of a member, and reads those that the
// database answers.
package metrics
