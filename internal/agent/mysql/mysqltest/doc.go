// Package mysqltest runs members of MySQL for tests, with the real programs. It has
// content with the build tag mysql only.
package mysqltest
