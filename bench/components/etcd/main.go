// Starts an etcd member (etcdbench serve FLAGS…), or drives a cluster with conditional puts (etcdbench drive …).
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "drive" {
		drive(os.Args[2:])
		return
	}
	etcdmain.Main(append(os.Args[:1], os.Args[2:]...))
}
