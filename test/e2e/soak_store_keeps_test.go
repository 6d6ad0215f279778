//go:build soak

package e2e

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"
	"k8s.io/utils/ptr"
)

// storeKeeps: what the tests of backups do to a store happens to it.
func storeKeeps(t *testing.T) {
	s := newStore(t, "sized", "64Mi")
	content := make([]byte, 1<<20)
	_, err := rand.Read(content)
	must(t, err, "make up an object")
	for _, key := range []string{"one/kept", "one/corrupted", "two/truncated", "two/removed"} {
		s.putObject(key, content)
	}
	s.corruptObject("one/corrupted")
	s.truncateObject("two/truncated")
	s.removeObject("two/removed")

	app := newClient(t)
	s.waitServed(app, true)
	s.stopStore()
	s.waitServed(app, false)
	s.startStore()
	s.waitServed(app, true)

	if keys := s.listKeys("one/"); !slices.Equal(keys, []string{"one/corrupted", "one/kept"}) {
		t.Errorf("below one/ there is %q", keys)
	}
	if keys := s.listKeys(""); len(keys) != 3 {
		t.Errorf("there is %q", keys)
	}
	if !bytes.Equal(s.getObject("one/kept"), content) {
		t.Error("an object changed while the store was stopped")
	}
	differ := 0
	for n, b := range s.getObject("one/corrupted") {
		if b != content[n] {
			differ++
		}
	}
	if differ != 1 {
		t.Errorf("%d bytes of the corrupted object differ", differ)
	}
	if half := s.getObject("two/truncated"); !bytes.Equal(half, content[:len(content)/2]) {
		t.Errorf("the truncated object has %d bytes", len(half))
	}
	s.refusesStrangers()
	s.filledUp(content)
}

// refusesStrangers: wrong credentials and another bucket are distinguished, and no client
// has to trust the store's certificate.
func (s *store) refusesStrangers() {
	s.t.Helper()
	with := func(key, value string) map[string][]byte {
		access := maps.Clone(s.access)
		access[key] = []byte(value)
		return access
	}
	for _, c := range []struct {
		access       map[string][]byte
		bucket, want string
	}{
		{with(accessKeyID, "nobody"), bucket, "InvalidAccessKeyId"},
		{with(accessKey, "guessed"), bucket, "SignatureDoesNotMatch"},
		{s.access, "missing", "NoSuchBucket"},
	} {
		if err := putObject(s.t.Context(), s.newClient(c.access), c.bucket, "strange", []byte("content")); errorCode(err) != c.want {
			s.t.Errorf("the store says %v, want %s", err, c.want)
		}
	}
	err := putObject(s.t.Context(), s.newClient(with(trustedCA, string(userCA(s.t).CertPEM))), bucket, "strange", []byte("content"))
	if !errors.As(err, new(x509.UnknownAuthorityError)) {
		s.t.Errorf("under another CA: %v", err)
	}
}

// filledUp: a full store takes nothing more, keeps what it has, and takes more
// when there is space.
func (s *store) filledUp(content []byte) {
	s.t.Helper()
	s.fillVolume()
	if err := putObject(s.t.Context(), s.s3, bucket, "one/more", content); errorCode(err) != storeIsFull {
		s.t.Errorf("a full store says %v", err)
	}
	if !bytes.Equal(s.getObject("one/kept"), content) {
		s.t.Error("an object changed while the store was full")
	}
	s.emptyVolume()
	s.putObject("one/more", content)
	if !bytes.Equal(s.getObject("one/more"), content) {
		s.t.Error("an object changed on the way")
	}
}

// waitServed waits until a pod of another namespace reaches the store, or can
// not.
func (s *store) waitServed(app *clientPod, want bool) {
	s.t.Helper()
	connect := fmt.Sprintf("timeout 2 bash -c '</dev/tcp/%s/%d' 2>/dev/null && echo true || echo false", s.hostName(), storePort)
	eventually(s.t, serviceTimeout, fmt.Sprintf("the store is reached: %t", want), func(ctx context.Context) error {
		got, err := runCommand(ctx, app.namespace, app.name, "", "bash", "-c", connect)
		if err == nil && got != fmt.Sprint(want) {
			err = errors.New(got)
		}
		return err
	})
}

// errorCode is the code that a store gave its error; empty where it gave none.
func errorCode(err error) string {
	var answer smithy.APIError
	if errors.As(err, &answer) {
		return answer.ErrorCode()
	}
	return ""
}

func (s *store) removeObject(key string) {
	s.t.Helper()
	_, err := s.s3.DeleteObject(s.t.Context(), &s3.DeleteObjectInput{Bucket: ptr.To(bucket), Key: &key})
	must(s.t, err, "remove the store's "+key)
}

// fillVolume takes all the space there is, on a volume that holds no more than it
// says.
func (s *store) fillVolume() {
	s.t.Helper()
	left := s.size.Value()
	for size := 8 << 20; size >= 4<<10; size /= 4 {
		for n := 0; ; n++ {
			err := putObject(s.t.Context(), s.s3, bucket, fmt.Sprintf("%s%d-%d", fillers, size, n), make([]byte, size))
			if errorCode(err) == storeIsFull {
				break
			}
			if left -= int64(size); err == nil && left < 0 {
				err = errors.New("its volume holds more than " + s.size.String())
			}
			must(s.t, err, "fill the store")
		}
	}
}

// emptyVolume frees the space that fillVolume took.
func (s *store) emptyVolume() {
	s.t.Helper()
	for _, key := range s.listKeys(fillers) {
		s.removeObject(key)
	}
}

// fillers are the keys of what takes a store's space away.
const fillers = "filler/"

// storeIsFull is the code of the store's error when its volume is full.
const storeIsFull = "InsufficientStorage"
