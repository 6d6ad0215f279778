// Package group is a member's part in Group Replication. Its rules are pure: what a
// member does next, from what the members report and from the record that they keep
// together. A Client observes the server's view of the group and does one thing at a
// time. It decides nothing.
package group
