#!/bin/sh
# Translates with buf curl over gRPC: buf-curl.sh '{"texts": ["今天天气很好"]}'
# buf learns the messages by reflection, and prints the JSON of a TranslateResponse.
set -eu
request=${1:-'{"texts": ["今天天气很好"]}'}
address=${TRANSLANE_CLIENT_SERVER:-localhost:50051}
set -- --protocol grpc --data "$request"
scheme=http
if [ -n "${TRANSLANE_CLIENT_CA:-}" ]; then
    scheme=https
    set -- "$@" --cacert "$TRANSLANE_CLIENT_CA"
fi
if [ -n "${TRANSLANE_CLIENT_TOKEN:-}" ]; then
    # From standard input, because all users of a machine see the arguments of its programs. Reflection needs the key, too.
    printf 'authorization: Bearer %s\n' "$TRANSLANE_CLIENT_TOKEN" \
        | buf curl "$@" -H @- --reflect-header '*' "$scheme://$address/translane.v1.TranslationService/Translate"
else
    buf curl "$@" "$scheme://$address/translane.v1.TranslationService/Translate"
fi
