// Package recoverywatch knows whether the recovery of a PostgreSQL server makes
// progress: whether its startup process reads or replays WAL. A recovery that does may
// take as long as it needs.
package recoverywatch
