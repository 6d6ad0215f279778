// Package agent is the process beside the database, as far as it is the same for
// every engine: the command, the life of the member, its configuration and the
// role label of its pod. Its parts are packages of their own: guard, the process above
// it, identity, leaseclient, volumelock, diskspace, process, health and
// statusserver. They never import this package.
//
// Losing the API server is not losing the database. Whatever needs the API server
// is tried again in the background while the database goes on. A primary that
// cannot renew its Lease goes on too, because in this version no other member may
// take over.
package agent
