// Package rewind makes the data of a former primary a standby's again with pg_rewind,
// after a failover that is on record. It keeps the WAL that is dropped from the data, and
// never leaves data that is half rewound without a mark.
package rewind
