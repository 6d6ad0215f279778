// Package importer is what the Job of an import runs: it copies a database of another
// PostgreSQL server into the first database of a new cluster, with pg_dump and
// pg_restore of the new server.
//
// All that it writes is one transaction of the new database: objects, rows, the
// comparison with the source, statistics, and last the record of the import. However
// a try ends, the database holds all of the source or nothing of it. The source is
// read in one snapshot, so that it may be in use meanwhile.
package importer
