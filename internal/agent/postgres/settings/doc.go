// Package settings computes what PostgreSQL runs with: its settings, who may
// connect, and how a replica reaches its primary. It also finds what ALTER
// SYSTEM has changed of Holdfast's own settings.
package settings
