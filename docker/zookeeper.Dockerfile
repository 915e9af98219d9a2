# ZooKeeper from Debian's packages, for tests where the public image cannot be had.
ARG BASE=debian:bookworm-slim
FROM ${BASE}
RUN apt-get update -q \
    && mkdir -p /usr/share/man/man1 \
    && apt-get install -y -q --no-install-recommends default-jre-headless libzookeeper-java zookeeper \
    && rm -rf /var/lib/apt/lists/* \
    && mkdir -p /conf /data /datalog \
    && printf 'tickTime=500\ndataDir=/data\ndataLogDir=/datalog\nclientPort=2181\nadmin.enableServer=false\n' \
       > /conf/zoo.cfg
VOLUME /data /datalog
EXPOSE 2181
CMD ["java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", \
     "-cp", "/usr/share/java/zookeeper.jar:/usr/share/java/*", \
     "org.apache.zookeeper.server.quorum.QuorumPeerMain", "/conf/zoo.cfg"]
