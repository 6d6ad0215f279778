// Package server runs PostgreSQL's programs and its server: it starts and stops
// the server, connects to it, and reads pg_control.
package server
