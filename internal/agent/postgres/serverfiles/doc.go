// Package serverfiles writes what the server reads from files: its settings, who may
// connect, and its certificates; and it removes from them what a killed server, or
// ALTER SYSTEM, has left.
package serverfiles
