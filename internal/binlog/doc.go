// Package binlog reads MySQL's binlogs as the server writes them: which transactions
// a file holds, where each begins, when it was committed, and which came before the
// file. Every event is checked against its CRC32. The changes themselves are not
// read, so compressed transactions are as good as others. A file is read as a stream
// in little memory, whatever its size. The package is pure.
//
// The format is MySQL's, of version 8.4 and later:
// https://dev.mysql.com/doc/dev/mysql-server/latest/page_protocol_replication.html
package binlog
