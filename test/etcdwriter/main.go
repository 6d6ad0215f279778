// Command etcdwriter is an application of an etcd cluster, for tests: it writes
// one key after the other, reads each back linearizably, and reports which writes
// were acknowledged and when. What it connects with lies in the folder of a
// connection Secret.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
)

// last is the key of the newest write's number.
const last = "last"

var errGone = errors.New("the newest number is gone")

// patience with one request.
const patience = 2 * time.Second

func main() {
	folder := flag.String("connection", "/tmp/connection", "folder with endpoints, ca.crt, tls.crt and tls.key")
	until := flag.String("until", "/tmp/stop", "the file whose coming ends the writing")
	pause := flag.Duration("pause", 10*time.Millisecond, "time between two writes")
	fill := flag.Int("fill", 0, "instead, write over one key in values of so many KiB until the database is full")
	flag.Parse()
	client, err := newClient(*folder)
	if err != nil {
		log.Fatal(err)
	}
	if *fill > 0 {
		err = fillUp(client, *fill<<10)
	} else {
		err = writeNumbers(client, *until, *pause)
	}
	if err := errors.Join(err, client.Close()); err != nil {
		log.Fatal(err)
	}
}

func newClient(folder string) (*clientv3.Client, error) {
	file := func(name string) []byte {
		content, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			log.Fatal(err)
		}
		return content
	}
	certificate, err := tls.X509KeyPair(file("tls.crt"), file("tls.key"))
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(file("ca.crt")) {
		return nil, errors.New("ca.crt holds no certificate")
	}
	return clientv3.New(clientv3.Config{
		Endpoints:            strings.Split(strings.TrimSpace(string(file("endpoints"))), ","),
		DialTimeout:          patience,
		DialKeepAliveTime:    patience,
		DialKeepAliveTimeout: patience,
		// Otherwise an attempt to connect to a pod that has just gone takes up to 20 seconds.
		DialOptions: []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: patience})},
		TLS:         &tls.Config{Certificates: []tls.Certificate{certificate}, RootCAs: roots, MinVersion: tls.VersionTLS12},
	})
}

// writeNumbers reports "ack NUMBER MILLISECONDS" of each write that was acknowledged,
// with the time since the start; one that was not is not tried again, and may
// be there or not. A read that is older than an acknowledged write is "stale".
func writeNumbers(client *clientv3.Client, until string, pause time.Duration) error {
	for writeFirstNumber(client) != nil {
		time.Sleep(pause)
	}
	start := time.Now()
	for n := 1; ; n++ {
		if _, err := os.Stat(until); err == nil {
			return nil
		}
		if err := putNumber(client, n); err != nil {
			fmt.Fprintf(os.Stderr, "write %d: %v\n", n, err)
		} else {
			fmt.Printf("ack %d %d\n", n, time.Since(start).Milliseconds())
			if read, err := getNumber(client); err == nil && read < n || errors.Is(err, errGone) {
				fmt.Printf("stale %d %d\n", n, read)
			}
		}
		time.Sleep(pause)
	}
}

// writeFirstNumber makes the first number, which later ones are compared with.
func writeFirstNumber(client *clientv3.Client) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, err := client.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(last), "=", 0)).
		Then(clientv3.OpPut(last, padNumber(0))).Commit()
	return err
}

// padNumber pads a number, so that numbers sort as they count.
func padNumber(n int) string { return fmt.Sprintf("%012d", n) }

// putNumber writes a key of its own and the newest number. A request that was given
// up may still be carried out: it must not put the number back.
func putNumber(client *clientv3.Client, n int) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	number := padNumber(n)
	answer, err := client.Txn(ctx).If(clientv3.Compare(clientv3.Value(last), "<", number)).
		Then(clientv3.OpPut("written/"+number, number), clientv3.OpPut(last, number)).Commit()
	if err == nil && !answer.Succeeded {
		err = errors.New("a later write is there already")
	}
	return err
}

func getNumber(client *clientv3.Client) (int, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	answer, err := client.Get(ctx, last)
	if err != nil {
		return 0, err
	}
	if len(answer.Kvs) == 0 {
		return 0, errGone
	}
	return strconv.Atoi(string(answer.Kvs[0].Value))
}

// fillUp writes until the database has reached its quota. What is not answered in
// time, since another member is being elected, is written again.
func fillUp(client *clientv3.Client, size int) error {
	value := make([]byte, size)
	for i := range value {
		value[i] = byte(rand.IntN(256))
	}
	end := time.Now().Add(20 * time.Second)
	for n := 1; ; n++ {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		_, err := client.Put(ctx, "filler", string(value))
		cancel()
		switch {
		case err != nil && strings.Contains(err.Error(), "database space exceeded"):
			fmt.Printf("full %d\n", n)
			return nil
		case err != nil && time.Now().After(end):
			return err
		}
	}
}
