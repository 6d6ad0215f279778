// Package accounts keeps the roles, the first database and the replication
// slots of a primary.
package accounts
