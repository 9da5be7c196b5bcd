// go mod tidy adds the newest google.golang.org/grpc and google.golang.org/protobuf.
module example.org/translate

go 1.19
