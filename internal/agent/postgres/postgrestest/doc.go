// Package postgrestest runs several servers of the PostgreSQL of this machine, with the
// settings, accounts and certificates of members, for tests of the packages that use
// rolechange. PostgreSQL refuses to run as root.
package postgrestest
